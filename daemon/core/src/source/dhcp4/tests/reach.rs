//! What an inquiry finds out about answers that only broadcasts bring.

use fastrand::Rng;

use super::super::inquiry::Inquiry;
use super::script::{OFFER, Reply, SERVER_MAC, arp_of_server, at, from_server, name, plain, sent};

/// Has an inquiry's `nth` DISCOVER answered and looks at the next one. Returns the frames that left for each since, and the inquiry.
fn answered(nth: usize) -> (Vec<Vec<&'static str>>, Inquiry) {
    let mut inquiry = Inquiry::new(plain(), at(0.0), Rng::with_seed(7));
    let mut last = Vec::new();
    for _ in 0..nth {
        last = inquiry.on_clock(inquiry.deadline());
    }
    let offer = Reply::new(OFFER, sent(&last[0]).xid(), 3600).bytes();
    let heard = inquiry.offer(at(9.0), &from_server(&offer));
    heard.expect("an offer to it");
    let names = |frames: Vec<Vec<u8>>| frames.iter().map(|frame| name(frame)).collect();
    let at_once = names(inquiry.on_clock(at(0.0)));
    assert!(!inquiry.is_unreached(), "nobody had time to answer");
    let next = names(inquiry.on_clock(inquiry.deadline()));
    (vec![at_once, next], inquiry)
}

#[test]
fn an_inquiry_knows_when_only_broadcasts_arrive() {
    for nth in [1, 2] {
        let (left, inquiry) = answered(nth);
        assert_eq!(left, [vec![], vec!["DISCOVER"]]);
        assert!(!inquiry.is_unreached(), "it was answered without the flag");
    }
    let (left, mut inquiry) = answered(3);
    assert_eq!(left, [vec!["ARP"], vec!["ARP", "DISCOVER"]]);
    assert!(inquiry.is_unreached());
    inquiry.on_arp(&arp_of_server(SERVER_MAC));
    assert!(!inquiry.is_unreached(), "the server answers ARP");
}
