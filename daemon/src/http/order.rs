//! `POST /v1/renew` and `POST /v1/release`: an operator's orders, and their outcomes. Pure.

use leasehold_api::control::{self, Outcome};
use leasehold_core::effect::{Obeyed, Order, Upshot, Verb, Which};

use super::control::attachment;
use super::question::{Refusal, each};

/// A release without `force`.
pub(super) const RELEASE: Verb = Verb::Release { force: false };

/// The parameters that there are.
const KNOWN: &str = "name, network, container, address (or a subnet), state (such as BOUND or KEPT), door (cni or docker), \
                     all=true, and to release also force=true";

/// Reads the filter of a URL's query.
pub(super) fn which(query: &str) -> Result<Which, Refusal> {
    let mut which = control::Which::default();
    each(query, KNOWN, |name, value| which.take(name, value))?;
    Ok(meant(which))
}

/// Reads an order from a URL's query.
pub(super) fn parse(query: &str, mut verb: Verb) -> Result<Order, Refusal> {
    let mut which = control::Which::default();
    let mut all = false;
    each(query, KNOWN, |name, value| {
        match (name, value, &mut verb) {
            ("all", "true", _) => all = true,
            ("force", "true", Verb::Release { force }) => *force = true,
            _ => which.take(name, value)?,
        }
        Some(())
    })?;
    if !all && which == control::Which::default() {
        return Err(Refusal::bad(
            "no lease is named: say which you mean, or all=true",
        ));
    }
    Ok(Order {
        verb,
        which: meant(which),
    })
}

fn meant(which: control::Which) -> Which {
    Which {
        name: which.name,
        network: which.network,
        container: which.container,
        address: which.address,
        state: which.state,
        door: which.door,
    }
}

pub(super) fn obeyed(obeyed: &[Obeyed]) -> control::Obeyed {
    control::Obeyed {
        leases: obeyed.iter().map(upshot).collect(),
    }
}

fn upshot(
    Obeyed {
        attachment: of,
        address,
        upshot,
    }: &Obeyed,
) -> control::Upshot {
    let ends = if let Upshot::Extended { ends, .. } = upshot {
        *ends
    } else {
        None
    };
    let (outcome, because) = outcome(upshot);
    let seconds_to_expiry = ends.map(|ends| ends.as_secs());
    control::Upshot {
        attachment: attachment(of),
        address: *address,
        outcome,
        because,
        seconds_to_expiry,
    }
}

fn outcome(upshot: &Upshot) -> (Outcome, String) {
    match upshot {
        Upshot::Extended { server, .. } => (Outcome::Extended, format!("server {server} extended it")),
        Upshot::Fresh(ago) => (Outcome::Recent, format!("it was extended {} s ago", ago.as_secs())),
        Upshot::Unanswered(why) => {
            let why = why.as_deref().unwrap_or("no server answered");
            (Outcome::Unanswered, format!("{why}; it is held as before, and requested again at T1"))
        }
        Upshot::Unrecorded => (
            Outcome::Failed,
            "a server extended it, but the store has not recorded that: leasehold status says why".to_owned(),
        ),
        Upshot::Lost => (
            Outcome::Lost,
            "it was lost or given back meanwhile: `leasehold events` says why".to_owned(),
        ),
        Upshot::Nothing(state) => (Outcome::Nothing, format!("there is no lease now: {}", state.as_str())),
        Upshot::Local => (Outcome::Recent, "it is from a local range: it never ends, and needs no renewal".to_owned()),
        Upshot::Leaves => (Outcome::Returned, "it is being given back to its server".to_owned()),
        Upshot::Lives { interface: true } => (
            Outcome::Lives,
            "its container runs: with --force its address is taken off the container's interface first, and nothing else is put there before the next ADD".to_owned(),
        ),
        Upshot::Lives { interface: false } => (
            Outcome::Lives,
            "its container runs: with --force its address may be given to another while the container goes on using it".to_owned(),
        ),
        Upshot::Ambiguous => (Outcome::Ambiguous, "several leases match the name, so nothing was done".to_owned()),
        Upshot::Failed(failure) => (Outcome::Failed, failure.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::effect::{Failure, StoreCause};
    use leasehold_core::identity::Attachment;

    use super::*;

    #[test]
    fn an_order_says_which_leases_it_means() {
        let named = parse("name=shop%2Fweb-0&force=true", RELEASE).unwrap();
        assert_eq!(
            (named.verb, named.which.name.as_deref()),
            (Verb::Release { force: true }, Some("shop/web-0"))
        );
        let some = parse(
            "network=lan&state=KEPT&door=cni&address=10.0.0.0%2F24&container=c0",
            Verb::Renew,
        )
        .unwrap();
        assert_eq!(some.which.address, Some("10.0.0.0/24".parse().unwrap()));
        assert_eq!(
            parse("address=10.0.0.7", Verb::Renew)
                .unwrap()
                .which
                .address,
            Some("10.0.0.7/32".parse().unwrap())
        );
        assert_eq!(
            parse("all=true", Verb::Renew).unwrap(),
            Order {
                verb: Verb::Renew,
                which: Which::default()
            }
        );
        let slip = parse("", RELEASE).unwrap_err().to_string();
        assert_eq!(slip, "no lease is named: say which you mean, or all=true");
    }

    #[test]
    fn a_bad_parameter_of_an_order_is_named() {
        for query in [
            "nam=x",
            "address=x",
            "door=podman",
            "all=1",
            "force=true",
            "name=%2",
            "name",
        ] {
            let bad = parse(query, Verb::Renew);
            match query {
                "name" => assert!(bad.is_ok(), "an empty name fits no lease"),
                _ => assert!(bad.unwrap_err().to_string().starts_with(query), "{query}"),
            }
        }
    }

    #[test]
    fn each_upshot_is_a_word_and_a_sentence() {
        let of = |upshot| Obeyed {
            attachment: Attachment::cni("lan", "c1", "eth0"),
            address: Some("10.0.0.7/24".parse().unwrap()),
            upshot,
        };
        let minute = Duration::from_secs(60);
        let all = [
            of(Upshot::Extended {
                server: [10, 0, 0, 1].into(),
                ends: Some(minute),
            }),
            of(Upshot::Fresh(Duration::from_secs(3))),
            of(Upshot::Unanswered(None)),
            of(Upshot::Lost),
            of(Upshot::Leaves),
            of(Upshot::Lives { interface: true }),
            of(Upshot::Ambiguous),
            of(Upshot::Failed(Failure::Store(StoreCause::Full))),
        ];
        let golden = include_str!("tests/golden/obeyed.json");
        let text = serde_json::to_string_pretty(&obeyed(&all)).unwrap();
        assert_eq!(text, golden.trim_end(), "\n{text}");
    }
}
