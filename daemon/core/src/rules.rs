//! The core's rules for rare events: each has a name, a reason, and a property of the simulation that fails without it.
//!
//! [`cut`] says whether a rule is cut out, where the rule decides. Only tests can cut one out: the simulation cuts each in turn
//! and sees its property fail. What nothing misses is no rule, and goes.

#[cfg(any(test, feature = "testbed"))]
pub use self::testing::{RULES, Stated, cut_out};

#[cfg(any(test, feature = "testbed"))]
pub(crate) use self::testing::cut;

/// Lists the rules. Each line says why, then the rule's name, the property that fails without it, and the seed from which on that
/// is seen soon.
macro_rules! rules {
    ($($(#[doc = $why:literal])+ $rule:ident: $property:literal, $seed:literal;)+) => {
        /// A rule for a rare event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rule {
            $($(#[doc = $why])+ $rule,)+
        }

        #[cfg(any(test, feature = "testbed"))]
        mod testing {
            use std::cell::Cell;

            use super::Rule;

            /// A rule, and what stands for it.
            #[derive(Clone, Copy, Debug)]
            pub struct Stated {
                /// The rule.
                pub rule: Rule,
                /// What it does, and why.
                pub why: &'static str,
                /// The property of the simulation that fails without it.
                pub property: &'static str,
                /// The seed from which on that is seen soon.
                pub seed: u64,
            }

            /// All rules.
            pub const RULES: &[Stated] = &[$(Stated {
                rule: Rule::$rule,
                why: concat!($($why),+),
                property: $property,
                seed: $seed,
            }),+];

            thread_local! {
                static CUT: Cell<Option<Rule>> = const { Cell::new(None) };
            }

            /// Cuts a rule out in this thread from now on, or none.
            pub fn cut_out(rule: Option<Rule>) {
                CUT.set(rule);
            }

            /// Returns whether a rule is cut out.
            pub(crate) fn cut(rule: Rule) -> bool {
                CUT.get() == Some(rule)
            }
        }
    };
}

rules! {
    /// Before a RELEASE the LAN is asked for the address if its identity can return, or an earlier boot had it: another host's
    /// container may use it by now.
    AskBeforeRelease: "ReleaseElsewhere", 43;
    /// A station that claims an address is asked for one that nobody can have: who answers for that too proves nothing.
    ProxyControl: "Declined", 22;
}

/// Returns whether a rule is cut out: only tests do that.
#[cfg(not(any(test, feature = "testbed")))]
pub(crate) const fn cut(_: Rule) -> bool {
    false
}
