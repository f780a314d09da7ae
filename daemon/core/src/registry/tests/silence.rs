//! An ADD without an offer names what may be the reason.

use super::rig::*;
use crate::effect::FrameMeta;

fn silent() -> Rig {
    let mut rig = Rig::new(8);
    rig.server = Server::Silent;
    rig
}

#[test]
fn a_reason_is_looked_for_three_seconds_before_the_limit() {
    let mut rig = silent();
    rig.survey = Some(Survey {
        carrier: Some(true),
        received: Some(7),
        ..Survey::default()
    });
    let add = rig.add("a", 1, "a");
    rig.run_until(1026.9);
    assert_eq!(rig.surveys, 0);
    rig.run_until(1027.1);
    assert_eq!((rig.surveys, rig.answers.len()), (1, 0));
    rig.run_until(1030.1);
    let failure = rig.failure(add).to_string();
    assert!(
        failure.contains(
            "on br0 after 6 DISCOVERs in 30s: no answer came; 7 frames came in on br0 from outside"
        ),
        "{failure}"
    );
    assert!(rig.rows().is_empty() && rig.open.is_empty());
}

#[test]
fn a_last_server_that_is_there_and_silent_is_named() {
    for acknowledges in [false, true] {
        let mut rig = Rig::new(8);
        rig.survey = Some(Survey::default());
        rig.add("a", 1, "a");
        rig.server = Server::Silent;
        rig.run_until(1010.0);
        let add = rig.add("b", 2, "b");
        rig.run_until(1015.0);
        if acknowledges {
            rig.server = Server::Up;
            rig.add("c", 3, "c");
            rig.server = Server::Silent;
        }
        rig.run_until(1040.1);
        let failure = rig.failure(add).to_string();
        let expected = match acknowledges {
            false => {
                "192.0.2.1, the server last heard there, answers ARP, but has acknowledged nobody"
            }
            true => "server 192.0.2.1 has acknowledged others meanwhile",
        };
        assert!(failure.contains(expected), "{failure}");
    }
}

#[test]
fn a_look_that_takes_too_long_is_not_waited_for() {
    let mut rig = silent();
    let add = rig.add("a", 1, "a");
    rig.run_until(1030.1);
    assert_eq!(rig.surveys, 1);
    let failure = rig.failure(add);
    assert!(
        matches!(failure, Failure::NoOffer { silence: None, .. }),
        "{failure:?}"
    );
    assert_says(&failure, "is a DHCP server on that wire?");
}

#[test]
fn an_offer_is_no_silence() {
    for server in [Server::Up, Server::OffersOnly] {
        let mut rig = silent();
        rig.server = server;
        rig.add("a", 1, "a");
        rig.run_until(1030.1);
        assert_eq!(rig.surveys, 0);
    }
}

#[test]
fn an_add_whose_acknowledgement_is_refused_says_why() {
    for (server, expected) in [
        (
            Server::Up,
            "2 of 3 answers refused, the last because: acknowledged an address that was not requested: 192.0.2.77, not 192.0.2.50",
        ),
        (Server::OffersOnly, "after 3 REQUESTs in 5s"),
    ] {
        let mut rig = Rig::new(8);
        rig.server = Server::OffersOnly;
        let mut add = rig.call("a", 1, "a");
        add.timeout = std::time::Duration::from_secs(5);
        let add = rig.request(crate::effect::Call::Add(add));
        (rig.server, rig.give) = (server, OTHER);
        rig.run_until(1005.1);
        let failure = rig.failure(add).to_string();
        assert!(
            failure.starts_with("server 192.0.2.1 offered 192.0.2.50")
                && failure.ends_with(expected),
            "{failure}"
        );
        let list = rig.request(crate::effect::Call::List);
        let Some(Answer::Bindings { refused, .. }) = rig.answers.get(&list) else {
            panic!()
        };
        let cause = "acknowledged an address that was not requested".to_owned();
        let wanted = (server == Server::Up).then_some((cause, 2));
        assert_eq!(*refused, wanted.into_iter().collect());
    }
}

#[test]
fn an_error_names_the_nak_and_the_missing_offer() {
    let mut rig = Rig::new(8);
    rig.add("a", 1, "a");
    rig.live.remove(&1);
    rig.server = Server::NaksOnly;
    let add = rig.add("b", 2, "a");
    rig.run_until(1030.1);
    let failure = rig.failure(add).to_string();
    assert!(
        failure.starts_with("server 192.0.2.1 refused 192.0.2.50 with a NAK, and no offer came"),
        "{failure}"
    );
    assert!(
        failure.ends_with("DISCOVERs: are its addresses used up?"),
        "{failure}"
    );
}

#[test]
fn an_add_whose_turn_came_late_says_so() {
    for (server, expected) in [
        (
            Server::Silent,
            " for its turn among others: it spent most of its time in that queue, because others there got no answer: try \
             again, or raise `timeout`",
        ),
        (Server::OffersOnly, " for its turn among others"),
    ] {
        let mut rig = Rig::new(1);
        rig.server = server;
        // Each of those that wait asks for 4 s.
        (1..=6).for_each(|n| _ = rig.add(&format!("a{n}"), n, &format!("a{n}")));
        let add = rig.add("b", 9, "b");
        rig.run_until(1030.1);
        let failure = rig.failure(add).to_string();
        assert!(failure.contains(expected), "{failure}");
    }
}

#[test]
fn an_add_without_a_turn_says_that_no_server_was_asked() {
    let mut rig = Rig::new(1);
    rig.server = Server::OffersOnly;
    rig.live = (1..=20).collect();
    (1..=12).for_each(|n| _ = rig.add(&format!("a{n}"), n, &format!("a{n}")));
    let mut call = rig.call("b", 20, "b");
    call.timeout = std::time::Duration::from_secs(20);
    let add = rig.request(crate::effect::Call::Add(call));
    rig.run_until(1020.1);
    let failure = rig.failure(add).to_string();
    assert!(
        failure.contains("its turn behind others on the same LAN, so no server was asked"),
        "{failure}"
    );
}

#[test]
fn a_link_that_came_up_lately_is_named_with_the_time_out() {
    let mut rig = silent();
    rig.survey = Some(Survey {
        carrier: Some(true),
        received: Some(7),
        ..Survey::default()
    });
    rig.interface.carrier = false;
    let add = rig.add("a", 1, "a");
    rig.run_until(1018.0);
    rig.interface.carrier = true;
    rig.tell_carrier(true);
    rig.run_until(1030.1);
    let failure = rig.failure(add).to_string();
    assert_says(&failure, "came up only 12s earlier");
    assert_says(&failure, "raise `timeout`");
}

#[test]
fn a_server_that_wants_the_broadcast_flag_gets_it() {
    let mut rig = Rig::new(8);
    rig.server = Server::AnswersFlag;
    let add = rig.add("a", 1, "a");
    rig.run_until(1004.0);
    rig.assert_leased(add);
}

#[test]
fn an_error_names_messages_that_the_link_refused() {
    let mut rig = silent();
    let add = rig.add("a", 1, "a");
    let exchange = *rig.open.keys().next().expect("an exchange");
    let cause = LinkCause::refused("send", "No buffer space available");
    rig.input(Input::Unsent {
        exchange,
        cause: cause.clone(),
    });
    rig.run_until(1030.1);
    let failure = rig.failure(add).to_string();
    assert!(
        failure.contains("1 message could not be sent, the last because: send: No buffer space"),
        "{failure}"
    );

    let mut rig = Rig::new(8);
    rig.bind();
    rig.server = Server::Silent;
    while rig.told(EventKind::Expired) == 0 {
        rig.wake();
        if let Some(exchange) = rig.open.keys().next() {
            rig.input(Input::Unsent {
                exchange: *exchange,
                cause: cause.clone(),
            });
        }
    }
    let event = rig
        .store
        .events
        .iter()
        .find(|event| event.kind == EventKind::Expired)
        .expect("an event");
    assert!(event.cause.contains("could not be sent"), "{}", event.cause);
}

#[test]
fn an_error_names_an_answer_that_cannot_be_read() {
    let mut rig = silent();
    let add = rig.add("a", 1, "a");
    let exchange = *rig.open.keys().next().expect("an exchange");
    // The frame of an answer as far as its IPv4 header, which says that there is more.
    let header = [
        0x45, 0, 1, 0x48, 0, 0, 0x20, 0, 64, 17, 0, 0, 192, 0, 2, 1, 255, 255, 255, 255,
    ];
    let bytes = [
        &[0xff; 6][..],
        &[2, 0, 0, 0, 0, 9],
        &[8, 0],
        &header,
        &[0; 308],
    ]
    .concat();
    rig.input(Input::Frame {
        exchange,
        bytes: &bytes,
        meta: FrameMeta::default(),
    });
    rig.run_until(1030.1);
    let failure = rig.failure(add).to_string();
    assert!(
        failure.contains("1 of 1 answer refused, the last because: wrong IPv4 header checksum"),
        "{failure}"
    );
}
