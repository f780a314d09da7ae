//! What should happen to the file of one address, given all requests about it. Pure.

use leasehold_api::cni::Holder;
use leasehold_core::identity::Attachment;

/// The most holders of one address that are remembered while its file cannot be changed.
const MAX_STALE: usize = 64;

/// What should happen to an address's file. `None` as a holder is nobody: the file names none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wish {
    /// Whose file is removed if it exists.
    stale: Vec<Option<Holder>>,
    /// Whose file should be there, and the index of the address's set.
    wanted: Option<(Option<Holder>, usize)>,
}

/// What to do about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// It is as it should be, or it should be removed but is somebody else's.
    Nothing,
    Remove,
    /// There is none.
    Write,
    /// It is removed, and another written.
    Replace,
    /// It is somebody else's.
    Yield,
}

impl Wish {
    /// Records that the file should be there.
    pub(super) fn write(&mut self, by: Option<Holder>, set: usize) {
        self.remove_wanted();
        self.stale.retain(|stale| *stale != by);
        self.wanted = Some((by, set));
    }

    /// Records that the file should not be there, if it is this holder's.
    pub(super) fn remove(&mut self, by: Option<Holder>) {
        self.wanted.take_if(|(wanted, _)| *wanted == by);
        if self.stale.contains(&by) {
            return;
        }
        if self.stale.len() == MAX_STALE {
            self.stale.remove(0);
        }
        self.stale.push(by);
    }

    fn remove_wanted(&mut self) {
        if let Some((before, _)) = self.wanted.take() {
            self.remove(before);
        }
    }

    /// Returns whose file should be there, and the index of the address's set.
    pub(super) fn wanted(&self) -> Option<&(Option<Holder>, usize)> {
        self.wanted.as_ref()
    }

    /// Returns whether this holder's file is to be removed.
    pub(super) fn is_stale(&self, by: Option<&Holder>) -> bool {
        self.stale.iter().any(|stale| is_same(by, stale.as_ref()))
    }

    /// Returns what to do. `there` is the holder of the file, if there is a file. With `is_given`, the address already belongs to
    /// the holder, whatever the file says: a power cut leaves files that name nobody.
    pub(super) fn act(&self, there: Option<Option<&Holder>>, is_given: bool) -> Act {
        match (there, &self.wanted) {
            (None, None) => Act::Nothing,
            (None, Some(_)) => Act::Write,
            (Some(by), Some((wanted, _))) if is_same(by, wanted.as_ref()) => Act::Nothing,
            (Some(by), None) if self.is_stale(by) => Act::Remove,
            (Some(_), None) => Act::Nothing,
            (Some(by), Some(_)) if self.is_stale(by) || (is_given && by.is_none()) => Act::Replace,
            (Some(_), Some(_)) => Act::Yield,
        }
    }
}

/// Returns whether a file's holder is this one. Before 0.8, host-local wrote only the container.
fn is_same(of_file: Option<&Holder>, holder: Option<&Holder>) -> bool {
    match (of_file, holder) {
        (
            Some(Holder {
                container,
                ifname: None,
            }),
            Some(holder),
        ) => *container == holder.container,
        (of_file, holder) => of_file == holder,
    }
}

/// Returns an attachment as host-local names it.
pub(super) fn holder(of: &Attachment) -> Option<Holder> {
    let known = |name: &str| Some(name.to_owned()).filter(|name| !name.is_empty());
    match of {
        Attachment::Cni {
            container, ifname, ..
        } => known(container).map(|container| Holder {
            container,
            ifname: known(ifname),
        }),
        Attachment::Docker { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(container: &str) -> Option<Holder> {
        Some(Holder {
            container: container.to_owned(),
            ifname: Some("eth0".to_owned()),
        })
    }

    fn older(container: &str) -> Option<Holder> {
        Some(Holder {
            container: container.to_owned(),
            ifname: None,
        })
    }

    /// `+c` writes the file of c, `-c` removes it.
    fn wish(steps: &[&str]) -> Wish {
        let mut wish = Wish::default();
        for step in steps {
            match step.split_at(1) {
                ("+", container) => wish.write(by(container), 0),
                (_, container) => wish.remove(by(container)),
            }
        }
        wish
    }

    #[test]
    fn the_latest_wish_counts_and_no_earlier_file_of_ours_is_in_its_way() {
        let (a, b, x) = (by("a"), by("b"), by("x"));
        let (old_a, old_x) = (older("a"), older("x"));
        type Row<'a> = (&'a [&'a str], Option<&'a Option<Holder>>, Act);
        let table: [Row<'_>; 18] = [
            (&["+a"], None, Act::Write),
            (&["+a"], Some(&a), Act::Nothing),
            (&["+a"], Some(&old_a), Act::Nothing),
            (&["+a"], Some(&x), Act::Yield),
            (&["+a"], Some(&None), Act::Yield),
            (&["-a"], None, Act::Nothing),
            (&["-a"], Some(&a), Act::Remove),
            (&["-a"], Some(&old_a), Act::Remove),
            (&["-a"], Some(&old_x), Act::Nothing),
            (&["-a"], Some(&None), Act::Nothing),
            (&["+a", "-a"], Some(&a), Act::Remove),
            (&["-a", "+b"], Some(&a), Act::Replace),
            (&["-a", "+b"], Some(&x), Act::Yield),
            (&["+a", "-a", "+b", "-b"], Some(&a), Act::Remove),
            (&["+a", "-a", "+b", "-b"], Some(&b), Act::Remove),
            (&["-a", "+b", "-b", "+a"], Some(&a), Act::Nothing),
            (&["-a", "+b", "-b", "+a"], Some(&b), Act::Replace),
            (&["+a", "-b"], Some(&a), Act::Nothing),
        ];
        for (steps, there, act) in table {
            assert_eq!(
                wish(steps).act(there.map(Option::as_ref), false),
                act,
                "{steps:?} {there:?}"
            );
        }
    }

    #[test]
    fn a_file_that_names_nobody_gives_way_to_whom_has_the_address() {
        assert_eq!(wish(&["+a"]).act(Some(None), true), Act::Replace);
        assert_eq!(wish(&["+a"]).act(Some(by("x").as_ref()), true), Act::Yield);
        let mut nobody = Wish::default();
        nobody.remove(holder(&Attachment::cni("lan", "", "")));
        assert_eq!(nobody.act(Some(None), false), Act::Remove);
        assert_eq!(nobody.act(Some(by("a").as_ref()), false), Act::Nothing);
    }
}
