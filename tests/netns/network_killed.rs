//! Our daemon is killed inside each call of the network driver. dockerd's calls then reach the next daemon, and neither a link
//! nor a lease is left.

use netns_fixtures::engine::played::EngineVersion;
use netns_fixtures::engine::wired::{WiredContainer, WiredNetwork};
use netns_fixtures::{DEADLINE, Error, Lan, sandbox};
use serde_json::{Value, json};

use crate::network::{Host, NEEDS, UNSAID};

/// A call in a container's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    CreateNetwork,
    CreateEndpoint,
    Join,
    Leave,
    DeleteEndpoint,
    DeleteNetwork,
}

/// What happens to a broken call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// It is repeated unchanged, as by a dockerd that had not sent its body.
    Again,
    /// It is repeated without its body. Docker then goes on without the answer, and never repeats the call.
    GivenUp,
}

impl Call {
    fn method(self) -> String {
        format!("NetworkDriver.{self:?}")
    }
}

impl Host {
    /// Ends the daemon with SIGKILL, and starts the next one.
    fn kill_daemon(&mut self) -> Result<(), Error> {
        self.lab.kill9()?;
        self.lab.start_daemon()
    }

    /// Makes a call during which the daemon is killed, when `inside` returns.
    fn dies_in(
        &mut self,
        call: Call,
        body: &Value,
        inside: impl FnOnce(&Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let unheard = self.docker.plugin.send(&call.method(), &body.to_string())?;
        inside(self)?;
        self.kill_daemon()?;
        drop(unheard);
        let without_body = self.docker.plugin.send(&call.method(), "")?.answer()?;
        // Leave has nothing to do, whatever it is about.
        let expected = if call == Call::Leave { 200 } else { 400 };
        assert_eq!(without_body.status, expected, "{call:?}: {without_body:?}");
        Ok(())
    }

    /// Makes a call if the daemon is to be killed in it. Returns whether Docker goes on without its answer.
    fn gives_up(
        &mut self,
        call: Call,
        body: &Value,
        killed: Call,
        then: Then,
    ) -> Result<bool, Error> {
        if call != killed {
            return Ok(false);
        }
        // Nobody would know about a lease that a server gives at that moment. The server must hear that one is given back.
        let may_give = call == Call::CreateEndpoint;
        if may_give {
            self.server.stop()?;
        }
        self.dies_in(call, body, |_| Ok(()))?;
        if may_give {
            self.server.restart(None)?;
        }
        Ok(then == Then::GivenUp)
    }

    fn plan(&self, with_ours: bool) -> Result<WiredNetwork, Error> {
        let options = json!({ "parent": Lan::IFNAME, "grace": "0" });
        match with_ours {
            true => self
                .docker
                .wire(json!({ "parent": Lan::IFNAME }), Some(options)),
            false => self.docker.wire(options, None),
        }
    }

    /// Lets a network and a container in it live as libnetwork makes them live when a call fails.
    fn lives_with_death_in(
        &mut self,
        killed: Call,
        then: Then,
        with_ours: bool,
    ) -> Result<(), Error> {
        let mut network = self.plan(with_ours)?;
        if killed == Call::CreateNetwork {
            self.docker.plugin.call(
                &Call::DeleteNetwork.method(),
                &json!({ "NetworkID": network.id }),
            )?;
            let body = network.body.clone();
            match self.gives_up(Call::CreateNetwork, &body, killed, then)? {
                false => self.docker.create_wired(&network)?,
                // The user tries again: it is another network.
                true => network = self.plan(with_ours)?,
            }
        }
        let mut web = self.docker.prepare_wired(&network, "web", None)?;
        self.container_lives(&mut web, killed, then)?;
        assert_eq!(
            web.container
                .netns
                .run_command("ip", &["-brief", "link"], "")?
                .lines()
                .count(),
            1,
            "the loopback"
        );
        self.docker.release_wired(&web)?;
        if killed == Call::DeleteNetwork {
            // What was said before is over.
            self.server.wait_until_free()?;
        }
        if !self.gives_up(
            Call::DeleteNetwork,
            &json!({ "NetworkID": network.id }),
            killed,
            then,
        )? {
            self.docker.unwire(&network)?;
        }
        Ok(())
    }

    fn container_lives(
        &mut self,
        web: &mut WiredContainer,
        killed: Call,
        then: Then,
    ) -> Result<(), Error> {
        self.docker.request_wired(web)?;
        let body = web.making();
        if self.gives_up(Call::CreateEndpoint, &body, killed, then)? {
            return Ok(());
        }
        self.docker.create_endpoint(web)?;
        let body = web.joining();
        if !self.gives_up(Call::Join, &body, killed, then)? {
            self.docker.join_wired(web)?;
            self.is_on_lan(web)?;
            let body = web.named();
            match self.gives_up(Call::Leave, &body, killed, then)? {
                false => self.docker.leave_wired(web)?,
                true => self.docker.take_back(web)?,
            }
        }
        let body = web.named();
        if !self.gives_up(Call::DeleteEndpoint, &body, killed, then)? {
            self.docker.delete_endpoint(web)?;
        }
        Ok(())
    }
}

const CALLS: [Call; 6] = [
    Call::CreateNetwork,
    Call::CreateEndpoint,
    Call::Join,
    Call::Leave,
    Call::DeleteEndpoint,
    Call::DeleteNetwork,
];

#[test]
fn a_call_cut_short_by_a_kill_can_be_repeated() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let mut host = Host::new(&sandbox, EngineVersion::V29)?;
    for with_ours in [false, true] {
        for killed in CALLS {
            host.lives_with_death_in(killed, Then::Again, with_ours)?;
            host.is_as_before()?;
        }
    }
    Ok(())
}

#[test]
fn a_call_given_up_after_a_kill_leaves_nothing() -> Result<(), Error> {
    let sandbox = sandbox!(NEEDS);
    let mut host = Host::new(&sandbox, EngineVersion::V29)?;
    // If it may have an endpoint that nobody names again, it learns that only from silence.
    let in_silence = |call: &Call| matches!(call, Call::CreateEndpoint | Call::DeleteEndpoint);
    for with_ours in [false, true] {
        for killed in CALLS.into_iter().filter(|call| !in_silence(call)) {
            host.lives_with_death_in(killed, Then::GivenUp, with_ours)?;
            host.is_as_before()?;
        }
    }
    for with_ours in [false, true] {
        for killed in CALLS.into_iter().filter(in_silence) {
            host.lives_with_death_in(killed, Then::GivenUp, with_ours)?;
        }
    }
    host.docker.restart()?;
    host.is_as_before_within(UNSAID + DEADLINE)
}
