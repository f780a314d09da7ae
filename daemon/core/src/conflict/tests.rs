use super::*;
use crate::wire::frame::{self, Frame, FrameMeta};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);
const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 51);
const LINK: Mac = Mac([2, 0, 0, 0, 0, 7]);
const CHADDR: Mac = Mac([2, 0, 0, 0, 0, 8]);
const NEIGHBOUR: Mac = Mac([2, 0, 0, 0, 0, 9]);
const STEP: Duration = Duration::from_micros(1);

fn at(seconds: f64) -> Instant {
    Instant::from_boot(Duration::from_secs_f64(seconds))
}

fn arp(bytes: &[u8]) -> Arp {
    match frame::decode(bytes, FrameMeta::default()) {
        Ok(Frame::Arp(arp)) => arp,
        other => panic!("no ARP: {other:?}"),
    }
}

fn reply(by: Mac, address: Ipv4Addr, to: Mac) -> Arp {
    Arp {
        op: ArpOp::Reply,
        target_mac: to,
        destination_mac: to,
        ..Arp::request(by, address, Ipv4Addr::UNSPECIFIED)
    }
}

/// A window and its random source; the test reads frames as they would be on the wire.
struct Bench {
    window: Window,
    rng: Rng,
}

impl Bench {
    fn optimistic(now: f64) -> Self {
        Self {
            window: Window::optimistic(ADDRESS, Box::new([LINK, CHADDR]), at(now)),
            rng: Rng::with_seed(3),
        }
    }

    /// Returns an optimistic window whose address appeared a moment before it is known to be free, and when that is.
    fn before_free() -> (Self, Instant) {
        let mut bench = Self::optimistic(0.0);
        bench.now(at(0.0), "probe");
        (0..2).for_each(|_| _ = bench.next("probe"));
        let free = bench.window.deadline();
        bench.window.appeared(free - STEP);
        bench.now(free - STEP, "announcement");
        (bench, free)
    }

    fn strict(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        Self {
            window: Window::strict(ADDRESS, Box::new([LINK, CHADDR]), at(0.0), &mut rng),
            rng,
        }
    }

    fn turn(&mut self, now: Instant) -> WindowAction {
        self.window.on_clock(now, &mut self.rng)
    }

    /// Moves to the next deadline: nothing just before it, `probe`, `announcement`, `free` or `over` at it.
    fn next(&mut self, what: &str) -> Instant {
        let when = self.window.deadline();
        let found = self.turn(when - STEP);
        assert_eq!(found, WindowAction::Wait, "{what} not early");
        self.now(when, what);
        when
    }

    fn now(&mut self, when: Instant, what: &str) {
        let turn = self.turn(when);
        let name = match &turn {
            WindowAction::Free => "free",
            WindowAction::Wait => "wait",
            WindowAction::Over => "over",
            WindowAction::Send(frame) | WindowAction::Repeat(frame) => {
                let arp = arp(frame);
                let found = (arp.op, arp.sender_mac, arp.target);
                assert_eq!(found, (ArpOp::Request, LINK, ADDRESS));
                let found = (arp.source_mac, arp.destination_mac);
                assert_eq!(found, (LINK, Mac::BROADCAST));
                assert!([Ipv4Addr::UNSPECIFIED, ADDRESS].contains(&arp.sender));
                if arp.sender.is_unspecified() {
                    "probe"
                } else {
                    "announcement"
                }
            }
        };
        assert_eq!(name, what, "at {when:?}");
    }
}

#[test]
fn a_strict_window_takes_four_to_seven_seconds() {
    for seed in 0..200 {
        let mut bench = Bench::strict(seed);
        let first = bench.next("probe");
        assert!(first <= at(1.0), "{first:?}");
        bench.next("probe");
        let last = bench.next("probe");
        let free = bench.next("free");
        assert_eq!(free, last + ANNOUNCE_WAIT);
        assert!((at(4.0)..=at(0.0) + PROBING).contains(&free), "{free:?}");
        assert_eq!(bench.next("over"), free + APPEARANCE);
    }
}

#[test]
fn an_address_is_announced_twice_from_when_it_appears() {
    let mut bench = Bench::strict(1);
    (0..3).for_each(|_| _ = bench.next("probe"));
    let free = bench.next("free");
    bench.window.appeared(free + STEP);
    bench.now(free, "wait");
    bench.now(free + STEP, "announcement");
    bench.window.appeared(free + STEP * 2);
    assert_eq!(bench.next("announcement"), free + STEP + ANNOUNCE_INTERVAL);
    bench.window.appeared(free + ANNOUNCE_INTERVAL * 2);
    assert_eq!(bench.next("over"), free + STEP + ANNOUNCE_INTERVAL * 2);
}

#[test]
fn what_is_a_conflict_before_the_address_is_used() {
    let ask = Arp::request;
    let probe = ask(NEIGHBOUR, Ipv4Addr::UNSPECIFIED, ADDRESS);
    let (stranger, none) = (Mac([2, 1, 1, 1, 1, 1]), Ipv4Addr::UNSPECIFIED);
    let both = [
        ("a reply to our probe", reply(NEIGHBOUR, ADDRESS, LINK)),
        ("a reply to another", reply(NEIGHBOUR, ADDRESS, stranger)),
        ("a request from the address", ask(NEIGHBOUR, ADDRESS, OTHER)),
        ("an announcement", ask(NEIGHBOUR, ADDRESS, ADDRESS)),
    ];
    let neither = [
        ("a probe for another", ask(NEIGHBOUR, none, OTHER)),
        ("a request for the address", ask(NEIGHBOUR, OTHER, ADDRESS)),
        ("a reply about another", reply(NEIGHBOUR, OTHER, LINK)),
        ("our own announcement", ask(LINK, ADDRESS, ADDRESS)),
        ("our own probe", ask(LINK, none, ADDRESS)),
        ("by our hardware address", ask(CHADDR, ADDRESS, ADDRESS)),
        ("by a group address", ask(Mac::BROADCAST, ADDRESS, ADDRESS)),
        ("by nobody", ask(Mac::default(), ADDRESS, ADDRESS)),
    ];
    let all = both.map(|it| (it, true, true)).into_iter();
    let all = all.chain([(("a probe", probe), false, true)]);
    for ((what, arp), optimistic, strict) in all.chain(neither.map(|it| (it, false, false))) {
        for (mut bench, wanted) in [
            (Bench::optimistic(0.0), optimistic),
            (Bench::strict(1), strict),
        ] {
            let heard = bench.window.on_arp(at(0.5), &arp);
            let expected = if wanted {
                Heard::Conflict { by: NEIGHBOUR }
            } else {
                Heard::Nothing
            };
            assert_eq!(heard, expected, "{what}, strict: {}", bench.window.strict);
        }
    }
}

/// Returns what follows a reply to us, then what follows another one.
fn replies(bench: &mut Bench, now: Instant, again: Instant) -> [&'static str; 2] {
    [now, again].map(
        |when| match bench.window.on_arp(when, &reply(NEIGHBOUR, ADDRESS, LINK)) {
            Heard::Nothing => "nothing",
            Heard::Defend(_) => "defended",
            Heard::Conflict { .. } => "conflict",
        },
    )
}

#[test]
fn an_address_is_defended_once_the_probes_are_over() {
    for (over, expected) in [(false, "conflict"), (true, "defended")] {
        let (mut bench, free) = Bench::before_free();
        if over {
            bench.now(free, "free");
        }
        let found = replies(&mut bench, free, free + STEP);
        assert_eq!(found, [expected, "conflict"]);
    }
}

#[test]
fn an_address_in_use_before_is_defended_from_the_start() {
    let ten = at(0.0) + DEFEND_INTERVAL;
    for (again, expected) in [(ten - STEP, "conflict"), (ten, "defended")] {
        for window in [Window::established, Window::announcing] {
            let window = window(ADDRESS, Box::new([LINK, CHADDR]), at(0.0));
            let mut bench = Bench {
                window,
                rng: Rng::with_seed(3),
            };
            assert_eq!(replies(&mut bench, at(0.0), again), ["defended", expected]);
        }
    }
}

#[test]
fn a_probe_for_an_address_in_use_is_left_to_the_kernel() {
    let mut bench = Bench::strict(1);
    bench.window.appeared(at(0.0));
    let probe = Arp::request(NEIGHBOUR, Ipv4Addr::UNSPECIFIED, ADDRESS);
    assert_eq!(bench.window.on_arp(at(0.5), &probe), Heard::Nothing);
}
