//! Namespaces and links for the tests of the net. Everything is gone when its value is.

#![allow(unsafe_code)] // One descriptor that nix returns as a bare number: see `file_at`.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use leasehold_core::effect::{ExchangeId, OpId, Outcome};
use leasehold_core::link::{
    ByName, Hears, KernelMessage, Link, LinkCause, LinkView, Sockets, Step, Target,
};
use leasehold_core::wire::Mac;
use leasehold_core::wire::frame::FrameMeta;
use netlink_packet_core::NLM_F_ACK;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sched::{CloneFlags, setns, unshare};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use super::frames::ArpFrame;
use crate::net::netlink::Netlink;
use crate::net::{Net, NetConfig, NetReport, News, StoreId};
use crate::skip::skip;

/// The store of the net under test.
pub(super) const STORE: StoreId = StoreId(0x1f);
/// How long the tests wait for anything.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);
/// The Ethernet address of `eth0` inside.
pub(super) const MAC: Mac = Mac([0x02, 0, 0, 0, 0, 0x0a]);
/// The Ethernet address of its other end, in the host.
pub(super) const PEER: Mac = Mac([0x02, 0, 0, 0, 0, 0x0b]);
/// What an exchange needs.
pub(super) const PLAIN: Sockets = Sockets {
    chaddr: MAC,
    arp: Hears::Answers,
    hold_port: None,
};

/// The same, and all ARP about who sends [`ArpFrame::QUESTION`].
pub(super) const OF_ASKER: Sockets = Sockets {
    arp: Hears::About(ArpFrame::QUESTION.sender),
    ..PLAIN
};

/// A net whose host is a namespace of the test.
pub(super) struct Lab {
    pub(super) net: Net,
    events: UnboundedReceiver<NetReport>,
    /// Without their places, so that waiting for one thing never keeps the next from coming.
    passed_over: VecDeque<NetReport>,
    last: u64,
}

/// Runs a test in its own namespace, which the net takes for the host's.
pub(super) fn in_lab(test: impl AsyncFnOnce(Lab) + Send + 'static) {
    in_lab_beside(None, test);
}

/// The same beside an engine that keeps the files of its namespaces in this directory.
pub(super) fn in_lab_beside(
    docker_netns: Option<PathBuf>,
    test: impl AsyncFnOnce(Lab) + Send + 'static,
) {
    let tested = thread::spawn(move || {
        if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
            return skip(format_args!(
                "a network namespace takes root, or a user namespace: {errno}"
            ));
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (events, driver) = unbounded_channel();
            let config = NetConfig {
                host_prefix: PathBuf::from("/"),
                docker_netns,
                store: STORE,
                workers: 3,
                sockets: 1000,
            };
            let net = Net::start(config, events).unwrap();
            test(Lab {
                net,
                events: driver,
                passed_over: VecDeque::new(),
                last: 0,
            })
            .await;
        });
    });
    if let Err(panic) = tested.join() {
        std::panic::resume_unwind(panic);
    }
}

impl Lab {
    pub(super) fn op(&mut self) -> OpId {
        self.last += 1;
        OpId(self.last)
    }

    /// Waits for the next event for which `wanted` returns something, and keeps the others.
    pub(super) async fn event<T>(&mut self, mut wanted: impl FnMut(&NetReport) -> Option<T>) -> T {
        for at in 0..self.passed_over.len() {
            if let Some(found) = wanted(&self.passed_over[at]) {
                self.passed_over.remove(at);
                return found;
            }
        }
        loop {
            let next = timeout(DEADLINE, self.events.recv()).await;
            let event = next
                .unwrap_or_else(|_| {
                    panic!(
                        "of {} events {:?}",
                        self.passed_over.len(),
                        self.passed_over.iter().take(9)
                    )
                })
                .unwrap();
            if let Some(found) = wanted(&event) {
                return found;
            }
            self.passed_over.push_back(match event {
                NetReport::Kernel(news) => NetReport::Kernel(News {
                    event: news.event,
                    _place: None,
                }),
                event => event,
            });
        }
    }

    /// Makes a namespace with a veth, and looks at it. Its other end has this name.
    pub(super) async fn known(&mut self, outside: &str) -> (Netns, LinkView) {
        let netns = Netns::with_veth(outside);
        let view = self.inspect(netns.eth0()).await.unwrap();
        (netns, view)
    }

    pub(super) async fn kernel(&mut self, wanted: KernelMessage) {
        self.event(|event| {
            matches!(event, NetReport::Kernel(told) if told.event == wanted).then_some(())
        })
        .await;
    }

    pub(super) fn send(&mut self, exchange: ExchangeId, frame: Vec<u8>) {
        self.net.send(None, exchange, frame, None);
    }

    /// Sends a frame and waits for the outcome.
    pub(super) async fn sent(
        &mut self,
        exchange: ExchangeId,
        frame: Vec<u8>,
    ) -> Result<(), LinkCause> {
        let op = self.op();
        self.net.send(Some(op), exchange, frame, None);
        match self.done(op).await {
            Outcome::Sent(result) => result,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for the next frame of an exchange.
    pub(super) async fn frame(&mut self, wanted: ExchangeId) -> (Vec<u8>, FrameMeta) {
        self.event(|event| match event {
            NetReport::Frame {
                exchange,
                bytes,
                meta,
            } if *exchange == wanted => Some((bytes.to_vec(), *meta)),
            _ => None,
        })
        .await
    }

    pub(super) async fn done(&mut self, wanted: OpId) -> Outcome {
        self.event(|event| match event {
            NetReport::Done { op, outcome } if *op == wanted => Some(outcome.clone()),
            _ => None,
        })
        .await
    }

    /// How many events wait to be taken.
    pub(super) fn untaken(&self) -> usize {
        self.events.len()
    }

    /// Returns what came unasked up to now.
    pub(super) fn left_over(&mut self) -> Vec<NetReport> {
        let mut all: Vec<_> = self.passed_over.drain(..).collect();
        all.extend(std::iter::from_fn(|| self.events.try_recv().ok()));
        all
    }

    pub(super) async fn apply(
        &mut self,
        target: Target,
        steps: &[Step],
    ) -> (usize, Result<LinkView, LinkCause>) {
        let op = self.op();
        self.net.apply(op, target, steps.to_vec());
        match self.done(op).await {
            Outcome::Applied { taken, result } => (taken, result),
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn inspect(&mut self, target: Target) -> Result<LinkView, LinkCause> {
        let op = self.op();
        self.net.inspect(op, target, true);
        match self.done(op).await {
            Outcome::Inspected(result) => result,
            other => panic!("{other:?}"),
        }
    }

    /// Looks at a link, ignoring what came in on it meanwhile.
    pub(super) async fn look(&mut self, target: Target) -> Result<LinkView, LinkCause> {
        self.inspect(target).await.map(|view| LinkView {
            received: 0,
            ..view
        })
    }

    pub(super) async fn open(
        &mut self,
        link: Link,
        want: Sockets,
    ) -> Result<ExchangeId, LinkCause> {
        let op = self.op();
        let exchange = ExchangeId(op.0);
        let chaddr = link.mac();
        self.net
            .open(op, exchange, link, Sockets { chaddr, ..want });
        match self.done(op).await {
            Outcome::Opened(result) => result.map(|()| exchange),
            other => panic!("{other:?}"),
        }
    }

    /// Sets a link up, and waits until it has carrier.
    pub(super) async fn raised(&mut self, target: Target) -> LinkView {
        let view = self.apply(target, &[Step::Up]).await.1.unwrap();
        self.has_carrier(view).await
    }

    async fn has_carrier(&mut self, view: LinkView) -> LinkView {
        if !view.carrier {
            self.kernel(KernelMessage::Carrier((view.cookie, view.ifindex), true))
                .await;
        }
        view
    }

    /// Makes a namespace with a veth whose other end is in the host, both up, and returns both links.
    pub(super) async fn pair(&mut self) -> (Netns, Link, Link) {
        let netns = Netns::with_veth("host0");
        let (_, inside) = self.apply(netns.eth0(), &[Step::Up]).await;
        let (_, outside) = self.apply(host("host0"), &[Step::Up]).await;
        let inside = self.has_carrier(inside.unwrap()).await;
        let link = netns.link(&inside);
        (netns, link, Link::parent(outside.unwrap().ifindex, PEER))
    }
}

/// Returns a link by its name in a namespace, which is not the host's.
pub(super) fn named(netns: impl Into<PathBuf>, ifname: &str) -> Target {
    Target::Named(ByName {
        netns: netns.into(),
        ifname: ifname.to_owned(),
        host_too: false,
    })
}

/// Returns a link that was seen in the namespace at a path.
pub(super) fn inside(path: &Path, view: &LinkView) -> Link {
    Link::InNetns {
        path: path.to_owned(),
        cookie: view.cookie,
        ifindex: view.ifindex,
        mac: view.mac,
    }
}

/// Returns a link of the host by its name.
pub(super) fn host(ifname: &str) -> Target {
    let ifname = ifname.to_owned();
    Target::Host { ifname }
}

pub(super) fn index_of(link: &Link) -> u32 {
    match link {
        Link::InNetns { ifindex, .. } | Link::Parent { ifindex, .. } => *ifindex,
    }
}

/// A namespace that lives as long as this.
pub(super) struct Netns(OwnedFd);

/// The descriptors of namespaces, one after the other: a number that was used for a namespace is not soon used again, so that
/// its path is gone when it is, as in a runtime's directory.
static DESCRIPTORS: AtomicI32 = AtomicI32::new(300);

impl fmt::Display for Netns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/proc/{}/fd/{}", std::process::id(), self.file())
    }
}

impl Netns {
    pub(super) fn new() -> Self {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            Self::here()
        });
        made.join().unwrap()
    }

    /// One with a veth whose other end is here and has this name.
    pub(super) fn with_veth(outside: &str) -> Self {
        let netns = Self::new();
        netns.veth(outside);
        netns
    }

    /// The calling thread's.
    pub(super) fn here() -> Self {
        let file = File::open("/proc/thread-self/ns/net").unwrap();
        let number = DESCRIPTORS
            .fetch_update(SeqCst, SeqCst, |n| Some(if n < 900 { n + 1 } else { 300 }))
            .unwrap();
        Self(file_at(number, &file))
    }

    /// A path that leads to it from every process.
    pub(super) fn path(&self) -> PathBuf {
        self.to_string().into()
    }

    pub(super) fn file(&self) -> i32 {
        self.0.as_raw_fd()
    }

    pub(super) fn eth0(&self) -> Target {
        named(self.path(), "eth0")
    }

    pub(super) fn link(&self, view: &LinkView) -> Link {
        inside(&self.path(), view)
    }

    /// Takes a number in the calling thread's namespace as soon as it is free. Does not turn the loop.
    pub(super) fn get_number(&self, number: i32) {
        let start = std::time::Instant::now();
        let mut message = NsidMessage::default();
        message.attributes = vec![
            NsidAttribute::Fd(self.file().cast_unsigned()),
            NsidAttribute::Id(number),
        ];
        let mut netlink = Netlink::open().unwrap();
        while netlink
            .request(
                RouteNetlinkMessage::NewNsId(message.clone()),
                NLM_F_ACK,
                |_, _| Ok(()),
            )
            .is_err()
        {
            assert!(start.elapsed() < DEADLINE);
            thread::yield_now();
        }
    }

    /// Waits until it has a number in the calling thread's namespace. Does not turn the loop.
    pub(super) fn wait_for_number(&self) {
        let start = std::time::Instant::now();
        let mut netlink = Netlink::open().unwrap();
        while netlink.number_of(&self.0).unwrap().is_none() {
            assert!(start.elapsed() < DEADLINE);
            thread::yield_now();
        }
    }

    /// Runs something inside.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }

    /// Makes a veth from `outside`, here, to `eth0` in it.
    pub(super) fn veth(&self, outside: &str) {
        ip(&format!(
            "link add {outside} address {PEER} type veth peer name eth0 address {MAC} netns {self}"
        ));
    }

    /// Makes a macvlan of `host0`, a link here, as `eth0` in it.
    pub(super) fn macvlan(&self, mac: Mac) {
        ip(&format!(
            "link add link host0 name eth0 address {mac} netns {self} type macvlan mode bridge"
        ));
    }

    /// Runs `ip` inside, and returns what it says.
    pub(super) fn ip(&self, arguments: &str) -> String {
        self.run(|| ip(arguments))
    }

    pub(super) fn nft(&self, rules: &str) {
        self.feed("nft -f -", rules);
    }

    /// Runs `ip link` inside, for each of these lines.
    pub(super) fn ip_link(&self, lines: &str) {
        self.feed(
            "ip -batch -",
            &lines
                .lines()
                .map(|line| format!("link {line}\n"))
                .collect::<String>(),
        );
    }

    /// Runs a command inside that reads its instructions.
    fn feed(&self, command: &str, text: &str) {
        let (program, arguments) = command.split_once(' ').unwrap();
        self.run(|| {
            let mut fed = Command::new(program);
            let mut fed = fed
                .args(arguments.split(' '))
                .stdin(Stdio::piped())
                .spawn()
                .expect("it is installed");
            std::io::Write::write_all(&mut fed.stdin.take().unwrap(), text.as_bytes()).unwrap();
            assert!(fed.wait().unwrap().success(), "{text}");
        });
    }
}

/// Returns another descriptor of this file, with the next free number from `number` on.
fn file_at(number: i32, file: &File) -> OwnedFd {
    let copy = fcntl(file, FcntlArg::F_DUPFD_CLOEXEC(number)).unwrap();
    // SAFETY: the kernel has just made this descriptor, and nobody else knows about it.
    unsafe { OwnedFd::from_raw_fd(copy) }
}

/// Returns the port of a netlink socket of the calling thread's namespace that hears groups, or that hears none.
pub(super) fn netlink_port(hears_groups: bool) -> u32 {
    let sockets = std::fs::read_to_string("/proc/thread-self/net/netlink").unwrap();
    let columns = sockets
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    // Those of the routing protocol, and not the kernel's own.
    let mut ours = columns.filter(|columns| columns[1] == "0" && columns[2] != "0");
    let found = ours.find(|columns| (columns[3] != "00000000") == hears_groups);
    found.expect("there is such a socket")[2].parse().unwrap()
}

/// Runs `ip` in the calling thread's namespace, and returns what it says.
pub(super) fn ip(arguments: &str) -> String {
    let done = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .expect("ip is installed");
    assert!(
        done.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8(done.stdout).unwrap()
}

/// Makes the bridge `br0` here, and returns its index.
pub(super) fn make_bridge() -> u32 {
    ip("link add br0 type bridge");
    nix::net::if_::if_nametoindex("br0").unwrap()
}
