//! The core's face: the registry, and Docker, which leases through it.
//!
//! It passes input on to one or the other. It hands Docker the registry's notices ([`Notice`]), one after the other; the registry
//! knows nothing about Docker.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use crate::counts::Counts;
use crate::docker::{self, Desk, Docker};
use crate::effect::{Call, Effect, ExchangeId, Input, RequestId, Why};
use crate::identity::{Attachment, Lan};
use crate::registry::{self, Config, Holdings, Notice, Registry};
use crate::time::{Instant, Now};
use crate::trouble::Trouble;

/// All that leasehold knows and decides.
#[derive(Debug)]
pub struct Core {
    pub(crate) registry: Registry,
    docker: Docker,
}

impl Core {
    /// Returns a core that knows nothing. All its randomness comes from `seed`.
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            registry: Registry::new(config, seed),
            docker: Docker::default(),
        }
    }

    /// Takes in what happened. Afterwards drain [`Core::poll_effect`], then read [`Core::poll_timeout`].
    pub fn handle(&mut self, now: Now, input: Input<'_>) {
        self.registry.read_clocks(now);
        match input {
            Input::Start {
                boot,
                mut records,
                doors,
                spooled,
                adoptees,
            } => {
                records
                    .iter_mut()
                    .for_each(|(_, record)| docker::complete(record));
                self.desk().recover(doors);
                registry::recover(&mut self.registry, boot, records);
                self.desk().give_back_those_without_endpoint();
                spooled
                    .into_iter()
                    .for_each(|(id, call)| self.request(id, call));
                registry::look_around(&mut self.registry);
                self.desk().list_own_links();
                adoptees
                    .into_iter()
                    .for_each(|adoptee| self.registry.adopt(adoptee));
            }
            Input::Request { id, call } => self.request(id, call),
            Input::HungUp(id) => {
                if !self.registry.hung_up(id) {
                    self.desk().hung_up(id);
                }
            }
            Input::Done { op, outcome } => self.registry.done(op, outcome),
            Input::Frame {
                exchange,
                bytes,
                meta,
            } => match self.registry.tables.out.above(exchange) {
                Some(id) => self.desk().hears(id, (bytes, meta)),
                None => self.registry.frame(exchange, bytes, meta),
            },
            Input::Broken { exchange, cause } => match self.registry.tables.out.above(exchange) {
                Some(id) => self.desk().broken(id, cause),
                None => self.registry.broken(exchange, cause),
            },
            Input::Unsent { exchange, cause } => match self.registry.tables.out.above(exchange) {
                Some(id) => self.desk().unsent(id, &cause),
                None => self.registry.unsent(exchange, &cause),
            },
            Input::Kernel(message) => self.registry.kernel(message),
        }
        self.settle();
    }

    /// Does what is due by the clock. Call it when the time of [`Core::poll_timeout`] has come, and now and then in between, so
    /// that a changed wall clock is soon noticed.
    pub fn handle_timeout(&mut self, now: Now) {
        self.registry.read_clocks(now);
        for key in self.registry.tables.timers.due(now.boot) {
            self.registry.on_clock(key);
            // What follows from this deadline comes before the next: a lease that was won answers its call first.
            self.go_on();
        }
        self.settle();
    }

    /// Returns the next thing to do outside.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.registry.poll_effect()
    }

    /// Returns when the clock next matters, and why; `None` while nothing waits.
    pub fn poll_timeout(&self) -> Option<(Instant, Why)> {
        self.registry.tables.timers.next()
    }

    /// Returns whose lease an exchange is about; `None` if it is about none, or closed.
    pub fn whose(&self, exchange: ExchangeId) -> Option<Arc<Attachment>> {
        self.registry.tables.whose(exchange)
    }

    /// Returns what was counted since the start.
    pub fn counts(&self) -> &Counts {
        &self.registry.tables.out.counts
    }

    /// Returns what is held.
    pub fn holdings(&self, now: Instant) -> Holdings {
        Holdings::of(&self.registry, now)
    }

    /// Returns the host links that leases or Docker's networks use, each with the number of leases.
    pub fn links(&self) -> BTreeMap<String, u64> {
        let mut links: BTreeMap<_, _> = self
            .docker
            .parents()
            .map(|ifname| (ifname.to_owned(), 0))
            .collect();
        for ifname in registry::parents(&self.registry) {
            *links.entry(ifname.to_owned()).or_default() += 1;
        }
        links
    }

    /// Returns the servers that do not extend leases any more, and for how long.
    pub fn silent_servers(&self, now: Instant) -> Vec<(Lan, Ipv4Addr, Duration)> {
        self.registry.tables.lans.silent(now)
    }

    /// Returns what is wrong with LANs and leases.
    pub fn troubles(&self, now: Now) -> Vec<Trouble> {
        registry::troubles(&self.registry, now)
    }

    /// Returns how many events were dropped because the store did not accept them.
    pub fn events_dropped(&self) -> u64 {
        self.registry.tables.out.events_dropped()
    }

    /// Returns how many containers a daemon that started now would have to adopt: those not adopted yet, and those whose
    /// lease has no record.
    pub fn adopting(&self) -> usize {
        self.registry.adopting()
    }

    fn desk(&mut self) -> Desk<'_> {
        Desk {
            docker: &mut self.docker,
            registry: &mut self.registry,
        }
    }

    /// Begins a call.
    fn request(&mut self, id: RequestId, call: Call) {
        match call {
            Call::Add(mut add) => {
                self.docker.limit(&mut add);
                self.registry.request(id, Call::Add(add));
            }
            Call::List => {
                let (pools, strangers) = self.desk().list();
                let answer = self.registry.list(pools, strangers);
                self.registry.tables.out.reply(id, answer);
            }
            Call::Pool(call) => self.desk().asked_of_pool(id, call),
            Call::Network(call) => self.desk().asked_of_network(id, call),
            call => self.registry.request(id, call),
        }
        self.tell();
    }

    /// Carries out what follows from the current input, until nothing more does.
    fn settle(&mut self) {
        self.go_on();
        self.registry.end_input();
    }

    /// Carries out what follows from what has happened.
    fn go_on(&mut self) {
        self.tell();
        while self.registry.go_on() {
            self.tell();
        }
    }

    /// Tells Docker what the registry has for it.
    fn tell(&mut self) {
        while let Some(notice) = self.registry.notices.pop_front() {
            let mut desk = self.desk();
            match notice {
                Notice::Done(waiter, outcome) => desk.done(waiter, outcome),
                Notice::Due(timer) => desk.on_clock(timer),
                Notice::Answered {
                    id,
                    attachment,
                    answer,
                } => desk.leased(id, attachment, answer),
                Notice::Over(attachment) => desk.endpoint_without_lease(&attachment),
                Notice::OwnLink { owner, there } => desk.own_link(owner, there),
                Notice::Missed => desk.list_own_links(),
            }
        }
    }
}
