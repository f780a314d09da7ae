//! What a seed decides before the first event: the size of the world, its servers, its faults, its crashes.

mod docker;
mod fallback;
mod rare;
mod relay;
mod taken;

use std::net::Ipv4Addr;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::grant::policy::{Detection, OnChange, OnExpiry};
use leasehold_core::registry::Config;
use netns_fixtures::model::{Knows, code};

pub(crate) use self::docker::{VLAN, Wires};
pub(crate) use self::fallback::Fallback;
pub(crate) use self::rare::{HIDDEN, RARE};
pub(crate) use self::relay::RELAYED;
pub(crate) use self::taken::TAKEN;

/// The first of the seeds with fallbacks. What is drawn for these changes nothing for earlier seeds.
pub(crate) const LOCAL: u64 = 1_000_000_000;

/// How often something happens, in parts per million.
pub(crate) type Chance = u32;

/// Returns a source of chance for what is drawn apart, so that it changes nothing else of a seed.
fn own(seed: u64, salt: u64) -> Rng {
    Rng::with_seed(seed ^ salt)
}

/// Draws whether something with this chance happens.
pub(crate) fn happens(rng: &mut Rng, chance: Chance) -> bool {
    chance > 0 && rng.u32(..1_000_000) < chance
}

/// The kinds of effects, at each of which a crash can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EffectKind {
    Persist,
    Open,
    Inspect,
    Apply,
    Send,
    Close,
    Reply,
    Publish,
    Make,
    Unmake,
}

impl EffectKind {
    /// All kinds, first those that every daemon has, whatever its doors.
    pub(crate) const ALL: [Self; 10] = [
        Self::Persist,
        Self::Open,
        Self::Inspect,
        Self::Apply,
        Self::Send,
        Self::Close,
        Self::Reply,
        Self::Publish,
        Self::Make,
        Self::Unmake,
    ];

    /// Those of an endpoint's link, and those just before and after them.
    const WIRED: [Self; 4] = [Self::Make, Self::Unmake, Self::Persist, Self::Reply];
}

/// The server identifier of a rogue that the networks' configuration denies.
pub(crate) const ROGUE: Ipv4Addr = Ipv4Addr::new(192, 168, 66, 1);

/// An unwanted server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rogue {
    /// The networks' configuration denies it. It is authoritative, with another subnet.
    Denied,
    /// Its answers must not be believed.
    Nonsense,
    /// It is authoritative, with another subnet, and refuses whatever it hears. It has nothing to offer.
    Refuses,
}

/// Where the daemon crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CrashPoint {
    /// At an effect of this kind,
    pub(crate) kind: EffectKind,
    /// the n-th that is carried out since the last crash, from 1 on;
    pub(crate) nth: u32,
    /// after it was carried out, but before its outcome is reported; else before.
    pub(crate) after: bool,
}

/// Everything that a seed decides beforehand. By default nothing goes wrong.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// How many attachments live at the same time.
    pub(crate) actors: usize,
    /// How many LANs there are.
    pub(crate) lans: usize,
    /// How many actors share a client identifier, at most.
    pub(crate) sharers: u32,
    /// How many clusters the actors belong to. They use the same names for pods, and the identifier begins with the cluster's
    /// name.
    pub(crate) clusters: usize,
    /// Servers per LAN.
    pub(crate) servers: usize,
    /// Whether two servers share a pool without knowing each other.
    pub(crate) overlap: bool,
    /// How the servers know their clients.
    pub(crate) knows: Knows,
    /// Whether the containers are on ipvlans: all on a LAN have the Ethernet address of the host's link.
    pub(crate) ipvlan: bool,
    /// An unwanted server.
    pub(crate) rogue: Option<Rogue>,
    /// Whether a server offers at once, and never acknowledges.
    pub(crate) deaf: bool,
    /// Whether the servers also hear broadcasts through the relay of another subnet, and refuse them in addition to answering.
    pub(crate) relay: bool,
    /// Whether the first server is behind a router.
    pub(crate) off_link: bool,
    /// Whether the first server is authoritative.
    pub(crate) authoritative: bool,
    /// Lease time in seconds; `u32::MAX` for ever.
    pub(crate) lease: u32,
    /// T1 and T2, if the server sends them.
    pub(crate) times: Option<(u32, u32)>,
    /// How long the server waits before an offer.
    pub(crate) offer_delay: Duration,
    /// Whether the servers are in macvlans on the host's link, and frames sent on that link itself do not reach them.
    pub(crate) beside: bool,
    /// How long a RENEW or REBIND waits for its answer.
    pub(crate) extend_delay: Duration,
    /// Whether the host's link hears frames to a container's Ethernet address, as it does over veth.
    pub(crate) promiscuous: bool,
    /// Whether the servers answer clients without an address only by broadcast, and only those that ask for that.
    pub(crate) flag_only: bool,
    /// The MTU that the server gives, if any.
    pub(crate) mtu: Option<u16>,
    /// How long the runtime goes on.
    pub(crate) active: Duration,
    /// How often a frame is lost.
    pub(crate) loss: Chance,
    /// How often a frame comes twice.
    pub(crate) duplicates: Chance,
    /// How late a frame may be, at most.
    pub(crate) late: Option<Duration>,
    /// How often, roughly, a server goes away for a while, restarts or forgets.
    pub(crate) server_faults: Option<Duration>,
    /// How often, roughly, one server or all of them cannot be reached for a while.
    pub(crate) partitions: Option<Duration>,
    /// How often, roughly, a server refuses every REQUEST for a while.
    pub(crate) storms: Option<Duration>,
    /// How often, roughly, a server gets a new configuration: another pool, subnet, mask, or other options.
    pub(crate) renumbers: Option<Duration>,
    /// The networks' policies for a lease that changes, and for one that ends.
    pub(crate) on_change: OnChange,
    pub(crate) on_expiry: OnExpiry,
    /// Neighbours that use an address of a server's pool without asking: the server, and which address of its pool.
    pub(crate) squatters: Vec<(usize, u32)>,
    /// Whether the servers offer a client again what it has declined.
    pub(crate) stubborn: bool,
    /// Whether a station on each LAN answers ARP probes for every address.
    pub(crate) proxy: bool,
    /// How many of the probed addresses a station on each LAN claims; it claims none that nobody can have.
    pub(crate) claimer: u32,
    /// How many seconds leases are kept whose identity can return. `None`: no identity can, in any network's configuration.
    pub(crate) grace: Option<u32>,
    /// How often a container whose identity can return is taken down late: by then the same client lives on another host.
    pub(crate) elsewhere: Chance,
    /// How the networks look for conflicts.
    pub(crate) detection: Detection,
    /// The metric of routes, if the networks set one.
    pub(crate) metric: Option<u32>,
    /// Whether main plugins get no routes beyond the subnet.
    pub(crate) late_routes: bool,
    /// Whether servers answer an extension with only the lease's times.
    pub(crate) terse: bool,
    /// The option whose value is cut short in answers to an extension.
    pub(crate) cut: Option<u8>,
    /// The time from carrier to the moment when a port forwards, if spanning tree delays it.
    pub(crate) forward_delay: Option<Duration>,
    /// How often an operation on a link fails or takes too long.
    pub(crate) link_faults: Chance,
    /// How often a transaction fails.
    pub(crate) store_faults: Chance,
    /// How often, roughly, the store is full for a while.
    pub(crate) store_full: Option<Duration>,
    /// Whether the end of a lease can be kept beside the socket while the store accepts nothing.
    pub(crate) spools: bool,
    /// How often the kernel's message is lost and the loss is reported.
    pub(crate) missed: Chance,
    /// Where the daemon crashes.
    pub(crate) crashes: Vec<CrashPoint>,
    /// How often a crash is the host's.
    pub(crate) reboots: Chance,
    /// How often a daemon that starts sees no namespace for a while.
    pub(crate) blindness: Chance,
    /// How often the store is found damaged after a crash, and set aside.
    pub(crate) damages: Chance,
    /// How often, roughly, the wall clock is set to another time.
    pub(crate) wall_jumps: Option<Duration>,
    /// How often, roughly, the host is suspended for a while.
    pub(crate) suspends: Option<Duration>,
    /// How often, roughly, runtimes collect what is no longer valid.
    pub(crate) collects: Option<Duration>,
    /// How often, roughly, an operator has leases extended. It then gives some back, too.
    pub(crate) orders: Option<Duration>,
    /// How often containers and callers misbehave: hang-ups, deaths, links gone, DEL during ADD, ADD twice.
    pub(crate) unruly: Chance,
    /// How often carrier comes late, or disappears for a while.
    pub(crate) flapping: Chance,
    /// Whether some containers are Docker's.
    pub(crate) docker: bool,
    /// How some of the Docker containers are on networks of our own driver.
    pub(crate) wires: Option<Wires>,
    /// What containers that no server answers get.
    pub(crate) fallback: Option<Fallback>,
    /// Whether the relay to the server dies after a quarter of the time: then no server hears broadcasts, and RENEW still gets
    /// there.
    pub(crate) relay_dies: bool,
    /// Whether the squatters come after a quarter of the time: then their addresses are leased.
    pub(crate) squatters_late: bool,
    /// How many exchanges of a LAN may talk to its servers at once.
    pub(crate) permits: usize,
    /// How many addresses a server has.
    pub(crate) pool: u32,
    /// Whether containers ask for addresses that are kept for others, and take nothing else.
    pub(crate) insists: bool,
    /// Whether the kernel takes a while to remove the links of a dead namespace, and the next container has the same Ethernet
    /// address.
    pub(crate) lingers: bool,
    /// Whether main plugins put addresses on late.
    pub(crate) plugs_late: bool,
    /// Whether every second actor's namespaces are in [`HIDDEN`], and a daemon without sight sees the others'.
    pub(crate) hides: bool,
}

impl Plan {
    /// Draws a plan. One seed in a hundred has 200 attachments; one in five has no faults at all. Seeds from [`LOCAL`] on have
    /// local ranges, fallbacks, or both.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = own(seed, 0x706c_616e);
        let rng = &mut rng;
        let big = seed % 100 == 99;
        let lease = match big {
            true => pick(rng, &[600, 3600]),
            false => pick(rng, &[10, 20, 60, 120, 600, 600, 3600, 86_400, u32::MAX]),
        };
        let span = u64::from(lease).min(86_400);
        let times = match rng.u32(..4) {
            0 if lease < u32::MAX => Some((lease / 2, lease / 8 * 7)),
            1 if lease < u32::MAX => Some((lease / 4, lease / 2)),
            _ => None,
        };
        let active = Duration::from_secs(if big { span } else { (span * 3).max(120) });
        let mut answers = own(seed, 0x6c61_7465);
        let (late, refuses) = (answers.u32(..4) == 0, answers.u32(..6) == 0);
        let calm = Self {
            actors: if big { 200 } else { 1 + rng.usize(..8) },
            lans: 1 + usize::from(rng.u32(..5) == 0),
            sharers: 1 + u32::from(rng.u32(..4) == 0),
            clusters: 1 + usize::from(own(seed, 0x636c_7573).u32(..3) == 0),
            servers: 1 + usize::from(rng.u32(..4) == 0),
            knows: Knows::ClientId,
            rogue: match rng.usize(..8) {
                6 => Some(Rogue::Denied),
                7 => Some(Rogue::Nonsense),
                _ => refuses.then_some(Rogue::Refuses),
            },
            deaf: own(seed, 0x6465_6166).u32(..6) == 0,
            relay: own(seed, 0x7265_6c61).u32(..6) == 0,
            off_link: rng.u32(..6) == 0,
            authoritative: rng.u32(..3) > 0,
            lease,
            times,
            offer_delay: Duration::from_secs(if rng.u32(..8) == 0 { 3 } else { 0 }),
            beside: own(seed, 0x6265_7369).u32(..4) == 0,
            extend_delay: match lease {
                120..600 if late => Duration::from_secs(6),
                600.. if late => Duration::from_secs(15),
                _ => Duration::ZERO,
            },
            promiscuous: rng.bool(),
            mtu: (rng.u32(..4) == 0).then_some(1400),
            active,
            on_change: match rng.usize(..5) {
                4 => OnChange::Keep,
                _ => OnChange::Apply,
            },
            on_expiry: match rng.usize(..4) {
                3 => OnExpiry::Keep,
                _ => OnExpiry::Remove,
            },
            stubborn: own(seed, 0x7374_7562).u32(..3) == 0,
            detection: match rng.usize(..4) {
                2 => Detection::Strict,
                3 => Detection::Off,
                _ => Detection::Optimistic,
            },
            metric: pick(rng, &[None, None, Some(77)]),
            spools: own(seed, 0x7370_6f6f).u32(..4) > 0,
            collects: pick(rng, &[None, None, None, Some(active / 4)]),
            unruly: pick(rng, &[0, 200_000, 500_000]),
            permits: Config::default().permits,
            pool: 471,
            ..Self::default()
        };
        let faults = if seed < RELAYED { rng.u32(..6) } else { 0 };
        let plan = calm
            .with_faults(faults, rng)
            .with_squatters(&mut own(seed, 0x7371_7561));
        let plan = plan.with_claims(&mut own(seed, 0x636c_6169));
        let plan = plan.with_keys(&mut own(seed, 0x6b65_7973));
        let plan = plan.with_blindness(&mut own(seed, 0x626c_696e));
        let plan = plan.with_grace(&mut own(seed, 0x6772_6163));
        let rng = &mut own(seed, 0x726f_7574);
        let plan = Self {
            late_routes: rng.bool(),
            terse: rng.u32(..6) == 0,
            ..plan
        };
        let plan = plan.with_ports(&mut own(seed, 0x706f_7274));
        let plan = plan.with_docker(&mut own(seed, 0x646f_636b));
        let plan = plan.with_wires(&mut own(seed, 0x7769_7265));
        let plan = match seed {
            ..LOCAL => plan,
            // If their servers allow that.
            LOCAL.. => plan.with_fallback(&mut own(seed, 0x6661_6c6c)),
        };
        // Clients that ask for broadcast answers at once, and leases that end before a third try, are irrelevant here.
        let long = plan.lease >= 600 && !plan.docker && !plan.ipvlan;
        let orders = (own(seed, 0x6f72_6472).u32(..6) == 0).then_some(active / 4);
        let plan = Self {
            orders,
            flag_only: long && own(seed, 0x666c_6167).u32(..8) == 0,
            ..plan
        };
        match seed {
            ..RELAYED => plan,
            RELAYED..TAKEN => plan.with_dying_relay(),
            TAKEN..RARE => plan.with_late_squatters(),
            RARE.. => plan.with_rarity(seed),
        }
    }

    /// Gives every second seed with flapping links ports that forward late, and one seed in six servers that cut an option short.
    fn with_ports(mut self, rng: &mut Rng) -> Self {
        let delay = Duration::from_secs(rng.u64(15..=30));
        self.forward_delay = Some(delay).filter(|_| self.flapping > 0 && rng.bool());
        self.cut = pick(
            rng,
            &[None, None, None, None, Some(code::ROUTERS), Some(code::DNS)],
        );
        self.cut = self.cut.filter(|_| rng.bool());
        self
    }

    /// Gives one seed in six servers that know their clients by chaddr, one in 24 a server that gives everybody the same address,
    /// and one in twelve clients that share their chaddr.
    fn with_keys(mut self, rng: &mut Rng) -> Self {
        self.knows = match rng.u32(..24) {
            0 if self.servers == 1 && self.actors <= 8 => Knows::Nothing,
            1..5 => Knows::Chaddr,
            _ => Knows::ClientId,
        };
        self.ipvlan = rng.u32(..12) == 0 && self.actors <= 8;
        // No link can have both macvlans and ipvlans.
        self.beside &= !self.ipvlan;
        self
    }

    /// Gives one in four of the seeds with crashes a daemon that may be blind.
    fn with_blindness(mut self, rng: &mut Rng) -> Self {
        if !self.crashes.is_empty() {
            self.blindness = pick(rng, &[0, 0, 0, 600_000]);
        }
        self
    }

    /// Gives two seeds in three identities that can return.
    fn with_grace(mut self, rng: &mut Rng) -> Self {
        self.grace = pick(rng, &[None, None, Some(0), Some(5), Some(60), Some(120)]);
        if self.grace.is_some() {
            self.elsewhere = pick(rng, &[0, 200_000]);
        }
        self
    }

    /// Gives one seed in four squatters, among the addresses that a server gives first.
    fn with_squatters(mut self, rng: &mut Rng) -> Self {
        if rng.u32(..4) == 0 {
            self.squatters = (0..1 + rng.u32(..5))
                .map(|_| (rng.usize(..self.servers), rng.u32(..8)))
                .collect();
        }
        self
    }

    /// Gives one seed in eight a station that answers for every address, and one in sixteen a station that claims what is
    /// offered. The first is left out if stores are damaged, because containers are then adopted without asking any station.
    fn with_claims(mut self, rng: &mut Rng) -> Self {
        self.proxy = rng.u32(..8) == 0 && self.damages == 0;
        if rng.u32(..16) == 0 {
            self.claimer = rng.u32(5..30);
        }
        self
    }

    fn with_faults(mut self, faults: u32, rng: &mut Rng) -> Self {
        let (network, host, crashes, clocks) = match faults {
            0 => (false, false, false, false),
            1 => (true, false, false, false),
            2 => (false, true, false, false),
            3 => (false, false, true, false),
            4 => (false, false, rng.bool(), true),
            _ => (true, true, true, rng.bool()),
        };
        let often = self.active / 4;
        if faults > 0 && self.lease < u32::MAX {
            self.renumbers = pick(rng, &[None, None, None, Some(often)]);
        }
        if network {
            self.loss = pick(rng, &[0, 10_000, 100_000, 300_000]);
            self.duplicates = pick(rng, &[0, 50_000, 300_000]);
            let late = pick(rng, &[None, Some(20), Some(3000)]);
            self.late = late.map(Duration::from_millis);
            self.server_faults = pick(rng, &[None, Some(often)]);
            self.partitions = pick(rng, &[None, Some(often)]);
            self.storms = pick(rng, &[None, None, Some(often)]);
            self.overlap = self.servers > 1 && rng.bool();
        }
        if host {
            self.link_faults = pick(rng, &[0, 10_000, 100_000]);
            self.store_faults = pick(rng, &[0, 20_000, 200_000]);
            self.store_full = pick(rng, &[None, Some(often)]);
            self.missed = pick(rng, &[0, 100_000, 500_000]);
            self.flapping = pick(rng, &[0, 100_000]);
        }
        if crashes {
            let most = (self.actors as u32 * 6).max(4);
            self.crashes = (0..1 + rng.usize(..3))
                .map(|_| CrashPoint {
                    kind: pick(rng, &EffectKind::ALL[..8]),
                    nth: 1 + rng.u32(..most),
                    after: rng.bool(),
                })
                .collect();
            if self.renumbers.is_some() && rng.bool() {
                // Work at interfaces is cut short.
                self.crashes
                    .iter_mut()
                    .for_each(|crash| crash.kind = EffectKind::Apply);
            }
            self.reboots = pick(rng, &[0, 200_000]);
            self.damages = pick(rng, &[0, 0, 300_000]);
        }
        if clocks {
            self.wall_jumps = pick(rng, &[None, Some(often), Some(often)]);
            self.suspends = pick(rng, &[None, Some(often), Some(often)]);
        }
        self
    }

    /// Returns the first and last address that a server of a LAN gives at first.
    pub(crate) fn pool(&self, lan: usize, server: usize) -> (Ipv4Addr, Ipv4Addr) {
        let base = Ipv4Addr::new(10, lan as u8, 0, 0).to_bits()
            + if self.overlap { 0 } else { server as u32 * 500 };
        (
            Ipv4Addr::from_bits(base + 10),
            Ipv4Addr::from_bits(base + 9 + self.pool),
        )
    }

    /// Returns how long the slowest try of an ADD takes: from its DISCOVER until an address is found free, or in use.
    pub(crate) fn one_try(&self) -> Duration {
        let seconds = [
            // REQUESTs that are never acknowledged.
            (self.deaf, 8),
            // The third message is the first that is answered.
            (self.flag_only, 4),
            (self.detection == Detection::Strict, 7),
            // Whoever claims the address is asked for one that nobody can have.
            (!self.squatters.is_empty() || self.claimer > 0, 1),
        ];
        let seconds = seconds
            .iter()
            .filter(|(is_so, _)| *is_so)
            .map(|(_, seconds)| seconds)
            .sum();
        self.offer_delay + Duration::from_secs(seconds)
    }

    /// Returns how soon an ADD has its lease if nothing goes wrong: after its first try, and one more for each address in use,
    /// once servers were silent about the address that it remembers. In a crowd, each waits for its turn, and finds that another
    /// has what it was offered.
    pub(crate) fn needs(&self) -> Duration {
        const CARRIER: Duration = Duration::from_secs(2);
        const PERMITS: u32 = 32;
        const SPREAD: Duration = Duration::from_secs(20);
        let (many, one) = (self.actors as u32, self.one_try());
        let turns = (one * many / PERMITS).saturating_sub(SPREAD);
        // A server that has forgotten the client is silent even so; an ADD has time for that where offers come at once.
        let is_refused = self.authoritative && self.servers == 1 && self.offer_delay.is_zero();
        let remembered = Duration::from_secs(if is_refused { 0 } else { 4 });
        CARRIER
            + remembered
            + turns
            + one * (1 + self.squatters.len() as u32 + u32::from(many > PERMITS))
    }

    /// Returns whether nothing goes wrong except what containers and callers do.
    pub(crate) fn is_calm(&self) -> bool {
        !self.may_lose_leases()
            && self.link_faults == 0
            && self.store_faults == 0
            && self.store_full.is_none()
            && self.missed == 0
            && self.flapping == 0
            && self.crashes.is_empty()
            && self.wall_jumps.is_none()
            && self.suspends.is_none()
            && !self.overlap
    }

    /// Returns whether the daemon hears everything that the kernel reports: if not, it cannot find out that a link went down and
    /// up.
    pub(crate) fn hears_all(&self) -> bool {
        self.missed == 0 && self.crashes.is_empty()
    }

    /// Returns whether a client can be expected to reach its server within a minute or two of its link's return.
    pub(crate) fn is_heard_soon(&self) -> bool {
        let host = self.link_faults > 10_000 || self.suspends.is_some() || self.blindness > 0;
        let strangers = self.proxy || self.claimer > 0 || !self.squatters.is_empty();
        let network = self.may_lose_leases() || self.relay_dies;
        self.hears_all() && !network && !host && !strangers && !self.overlap
    }

    /// Returns whether the network keeps a client from its server.
    pub(crate) fn may_lose_leases(&self) -> bool {
        let wire = self.loss > 0 || self.duplicates > 0 || self.late.is_some();
        wire || self.server_faults.is_some()
            || self.partitions.is_some()
            || self.storms.is_some()
            || self.renumbers.is_some()
    }

    /// Returns whether a lease may end because its holder did not reach its server in time.
    pub(crate) fn may_lapse(&self) -> bool {
        let host = self.link_faults > 0 || self.flapping > 0 || self.blindness > 0;
        self.may_lose_leases() || host || self.suspends.is_some()
    }

    /// Ends all faults.
    pub(crate) fn heal(&mut self) {
        (
            self.loss,
            self.duplicates,
            self.link_faults,
            self.store_faults,
        ) = (0, 0, 0, 0);
        (
            self.missed,
            self.reboots,
            self.flapping,
            self.damages,
            self.blindness,
        ) = (0, 0, 0, 0, 0);
        (self.relay_dies, self.forward_delay) = (false, None);
        (self.elsewhere, self.claimer) = (0, 0);
        (self.late, self.server_faults, self.store_full) = (None, None, None);
        (self.partitions, self.storms, self.renumbers) = (None, None, None);
        (self.wall_jumps, self.suspends) = (None, None);
    }
}

/// Draws one of several.
pub(crate) fn pick<T: Clone>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.usize(..from.len())].clone()
}
