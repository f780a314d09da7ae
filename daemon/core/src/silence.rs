//! Why nobody answered: what the host shows about it, and what to do about each cause.
//!
//! When an ADD has no offer and its time is nearly up, the daemon looks at its link and its LAN's. The error names what is
//! found, because the wire itself says nothing.

mod reason;

use std::net::Ipv4Addr;
use std::time::Duration;

pub(crate) use self::reason::Reason;
use crate::identity::Lan;

/// How long before the end of its time somebody whom no server answers looks for the reason. The host's firewall takes a few
/// milliseconds to answer, and a busy host takes seconds.
const AHEAD: Duration = Duration::from_secs(3);

/// The reasons why no server answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Whether the container's interface has carrier; `None`: it could not be looked at.
    pub carrier: Option<bool>,
    /// Frames that came in so far from outside: on the host's link, or, if that is a bridge, on its ports that lead to no container
    /// of leasehold. On the container's interface, if the LAN is named by no link.
    pub received: Option<u64>,
    /// How many ports of the bridge lead to no container of leasehold.
    pub ports: Option<usize>,
    /// What iptables does with the host's link's traffic, if that is a bridge.
    pub firewall: Firewall,
    /// Whether a socket on the DHCP servers' port is open in the host's namespace.
    pub server_on_host: bool,
    /// Whether the host's link is a bridge.
    pub parent_is_bridge: bool,
    /// How long the host's link, a bridge with the spanning tree protocol, blocks a new port.
    pub port_delay: Option<Duration>,
    /// Whether the container's interface is a macvlan: not a port of that bridge, but a child of it.
    pub macvlan: bool,
}

/// What iptables does with bridges' traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Firewall {
    /// Whether bridges' traffic goes through it (`net.bridge.bridge-nf-call-iptables` is 1); `None`: this kernel does not say.
    pub bridge_nf: Option<bool>,
    /// Whether the policy of the chain FORWARD is DROP; `None`: unknown.
    pub forward_drop: Option<bool>,
    /// Whether dockerd has its chain DOCKER-USER there. It may delete rules that others put into FORWARD.
    pub docker_user: bool,
}

impl Firewall {
    /// Returns the command that lets a bridge's traffic through, for good.
    pub fn allow(self, bridge: &str) -> String {
        let chain = if self.docker_user {
            "DOCKER-USER"
        } else {
            "FORWARD"
        };
        format!("iptables -I {chain} -i {bridge} -o {bridge} -j ACCEPT")
    }
}

/// Silence, as an ADD or an operator met it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// The container's interface.
    pub ifname: String,
    /// Frames that had come in from outside soon after the asking began; `None`: they were not counted.
    pub before: Option<u64>,
    /// How long the link had been up when the ADD's time was over, if it came up recently.
    pub up_for: Option<Duration>,
    /// What was found at the end.
    pub survey: Survey,
    /// The last server that was heard on the LAN.
    pub server: Option<LastServer>,
}

/// A server that was heard on a LAN before nobody answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastServer {
    /// Its identifier.
    pub address: Ipv4Addr,
    /// Whether it has answered ARP.
    pub is_there: bool,
    /// Whether it has acknowledged anybody's lease since the asking began.
    pub acknowledged: bool,
}

impl LastServer {
    /// Returns what it being there says.
    fn sentence(self) -> Option<String> {
        let Self { address, .. } = self;
        match (self.acknowledged, self.is_there) {
            (true, _) => Some(format!(
                "server {address} has acknowledged others meanwhile, but offers this client nothing: its pool may be full, or it \
                 serves known clients only"
            )),
            (false, true) => Some(format!(
                "{address}, the server last heard there, answers ARP, but has acknowledged nobody since: the machine is there, \
                 and its DHCP server is silent: see that it runs, and that its firewall lets UDP port 67 in"
            )),
            (false, false) => None,
        }
    }
}

impl Silence {
    /// Returns a sentence for each possible cause, with what to do about it, the likeliest first.
    pub fn reasons(&self, lan: &Lan) -> Vec<String> {
        let of_the_host = lan
            .parent()
            .into_iter()
            .flat_map(|parent| self.of_the_host(parent));
        self.carrier()
            .into_iter()
            .chain(self.spanning_tree(lan))
            .chain(of_the_host)
            .chain(self.wire(lan))
            .collect()
    }

    /// Returns what to do if the spanning tree protocol blocks the port, which first listens and then learns (802.1D-1998 §8.4).
    fn spanning_tree(&self, lan: &Lan) -> Option<String> {
        let ifname = &self.ifname;
        match (
            self.survey.port_delay.filter(|_| !self.survey.macvlan),
            lan.parent(),
            self.up_for,
        ) {
            (Some(delay), Some(bridge), _) => Some(format!(
                "bridge {bridge} runs the spanning tree protocol, which blocks {ifname} for its first {delay:?}: set \
                 `timeout` well above that, or turn the protocol off (ip link set {bridge} type bridge stp_state 0)"
            )),
            (_, _, Some(up)) => Some(format!(
                "{ifname} or the link below it came up only {up:?} earlier: if its switch port runs the spanning tree \
                 protocol, it forwards nothing for 30 s or more: raise `timeout`, or make it an edge port (PortFast)"
            )),
            (_, _, None) => None,
        }
    }

    fn carrier(&self) -> Option<String> {
        let lost = self.survey.carrier == Some(false);
        lost.then(|| {
            format!(
                "interface {} has lost its carrier: is its parent link up?",
                self.ifname
            )
        })
    }

    /// Returns what the LAN's last server, or else the frames that came in, say about the wire.
    fn wire(&self, lan: &Lan) -> Option<String> {
        self.server
            .and_then(LastServer::sentence)
            .or_else(|| self.frames(lan))
    }

    /// Returns what other frames say about the wire. A link without carrier hears none.
    fn frames(&self, lan: &Lan) -> Option<String> {
        let at = lan.parent().unwrap_or(&self.ifname);
        if self.survey.ports == Some(0) {
            return Some(format!(
                "every port of bridge {at} leads to a container: connect it to the LAN (ip link set LINK master {at})"
            ));
        }
        let received = self
            .survey
            .received
            .filter(|_| self.survey.carrier != Some(false))?;
        let heard = received.saturating_sub(self.before?);
        let frames = match heard {
            1 => "1 frame".to_owned(),
            _ => format!("{heard} frames"),
        };
        Some(match (heard, lan) {
            (0, _) => format!(
                "not one frame came in on {at} from outside: is that the right network, VLAN and switch port?"
            ),
            (_, Lan::Link { vlan: 1.., .. }) => format!(
                "{frames} came in on {at} from outside, perhaps of other VLANs: is the VLAN right, and is a DHCP server on it?"
            ),
            (_, Lan::Link { .. } | Lan::Network(_)) => format!(
                "{frames} came in on {at} from outside, so the wire works: is a DHCP server on it?"
            ),
        })
    }

    fn of_the_host(&self, parent: &str) -> Vec<String> {
        let survey = &self.survey;
        let firewall = survey.firewall;
        let setting = "net.bridge.bridge-nf-call-iptables=1";
        let walled = match (
            survey.parent_is_bridge && firewall.bridge_nf == Some(true),
            firewall.forward_drop,
        ) {
            (true, Some(true)) => Some(format!(
                "traffic on bridge {parent} goes through iptables ({setting}), where FORWARD drops by policy: set that \
                 to 0, or let {parent} through ({})",
                firewall.allow(parent)
            )),
            (true, None) => Some(format!(
                "traffic on bridge {parent} goes through iptables ({setting}): if its chain FORWARD does not let it through, \
                 do so ({})",
                firewall.allow(parent)
            )),
            (true, Some(false)) | (false, _) => None,
        };
        // Frames from a child of a link leave over that link, and never reach its host.
        let is_on_bridge = survey.parent_is_bridge && !survey.macvlan;
        let own = match (survey.server_on_host, is_on_bridge) {
            (true, false) => Some(format!(
                "a DHCP server runs on this host, which a container on {parent} cannot reach: use a bridge, or put the \
                 server elsewhere"
            )),
            (true, true) => Some(format!(
                "a DHCP server runs on this host: does it serve {parent}, and does the host's firewall let UDP port 67 in?"
            )),
            (false, _) => None,
        };
        walled.into_iter().chain(own).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    const BRIDGE: Survey = Survey {
        parent_is_bridge: true,
        ..NOTHING
    };
    const NOTHING: Survey = Survey {
        carrier: Some(true),
        received: None,
        ports: None,
        firewall: Firewall {
            bridge_nf: None,
            forward_drop: None,
            docker_user: false,
        },
        server_on_host: false,
        parent_is_bridge: false,
        port_delay: None,
        macvlan: false,
    };

    fn silence(survey: Survey) -> Silence {
        Silence {
            ifname: "eth0".to_owned(),
            before: Some(10),
            up_for: None,
            survey,
            server: None,
        }
    }

    fn lan() -> Lan {
        Lan::Link {
            parent: "br0".into(),
            vlan: 0,
        }
    }

    /// Has so many frames counted in all.
    fn received(frames: u64, survey: Survey) -> Survey {
        Survey {
            received: Some(frames),
            ..survey
        }
    }

    #[test]
    fn a_count_that_comes_late_is_not_the_reason() {
        let (began, limit) = (Instant::BOOT, Instant::BOOT + Duration::from_secs(10));
        let mut reason = Reason::default();
        assert_eq!((reason.look(None), reason.look(None)), (true, false));
        for survey in [received(7, Survey::default()), received(9, BRIDGE)] {
            reason.found(survey, "br0", (began, limit), None);
        }
        let silence = reason.silence().unwrap();
        assert_eq!(
            (silence.before, silence.survey.received),
            (Some(7), Some(9))
        );
    }

    /// Asserts that the reasons are these, by a part of each.
    fn says(survey: Survey, expected: &[&str]) {
        let found = silence(survey.clone()).reasons(&lan());
        assert_eq!(found.len(), expected.len(), "{survey:?}: {found:?}");
        let mut pairs = found.iter().zip(expected);
        assert!(pairs.all(|(found, part)| found.contains(part)), "{found:?}");
    }

    #[test]
    fn spanning_tree_is_named_if_it_may_be_the_reason() {
        let delayed = Survey {
            port_delay: Some(Duration::from_secs(30)),
            ..BRIDGE
        };
        let beside = Survey {
            macvlan: true,
            ..delayed.clone()
        };
        let reasons = |up_for, survey| {
            let silence = Silence {
                up_for,
                ..silence(survey)
            };
            silence.reasons(&lan()).concat()
        };
        let lately = Some(Duration::from_secs(12));
        let blocks = "bridge br0 runs the spanning tree protocol, which blocks eth0 for its first 30s: set `timeout`";
        for (up_for, survey, expected) in [
            (None, delayed.clone(), blocks),
            (lately, delayed, "bridge br0 runs"),
            (lately, NOTHING, "12s earlier: if its switch port"),
            (lately, beside, "came up only 12s earlier"),
        ] {
            let found = reasons(up_for, survey);
            assert!(
                found.contains(expected) && found.contains("`timeout`"),
                "{found}"
            );
        }
        assert!(!reasons(None, BRIDGE).contains("spanning tree"));
    }

    #[test]
    fn each_finding_has_its_sentence() {
        let firewall = |bridge_nf, forward_drop, docker_user| Survey {
            firewall: Firewall {
                bridge_nf: Some(bridge_nf),
                forward_drop,
                docker_user,
            },
            ..BRIDGE
        };
        let server = |survey| Survey {
            server_on_host: true,
            ..survey
        };
        let lost = Survey {
            carrier: Some(false),
            ..NOTHING
        };
        let alone = Survey {
            ports: Some(0),
            ..BRIDGE
        };
        let macvlan = Survey {
            macvlan: true,
            ..BRIDGE
        };
        says(NOTHING, &[]);
        says(received(10, lost), &["eth0 has lost its carrier"]);
        let none = "not one frame came in on br0 from outside";
        says(received(10, NOTHING), &[none]);
        let alone_on = "every port of bridge br0 leads to a container";
        says(received(10, alone), &[alone_on]);
        says(
            received(11, NOTHING),
            &["1 frame came in on br0 from outside, so"],
        );
        says(
            received(52, NOTHING),
            &["42 frames came in on br0 from outside, so"],
        );
        let dropped = "FORWARD drops by policy: set that to 0, or let br0 through (iptables -I FORWARD -i br0 -o br0 -j ACCEPT)";
        says(firewall(true, Some(true), false), &[dropped]);
        let user = "(iptables -I DOCKER-USER -i br0 -o br0 -j ACCEPT)";
        says(firewall(true, Some(true), true), &[user]);
        let chain = "if its chain FORWARD does not let it through";
        says(firewall(true, None, false), &[chain]);
        says(firewall(true, Some(false), false), &[]);
        says(firewall(false, Some(true), false), &[]);
        says(
            server(NOTHING),
            &["use a bridge, or put the server elsewhere"],
        );
        says(server(BRIDGE), &["does it serve br0"]);
        says(server(macvlan), &["a container on br0 cannot reach"]);
        // All that was found, the likeliest first.
        let all = received(12, server(firewall(true, Some(true), false)));
        says(all, &["FORWARD", "runs on this host", "2 frames"]);
    }

    #[test]
    fn of_a_network_without_a_host_link_the_host_says_nothing() {
        let survey = Survey {
            server_on_host: true,
            ..received(10, NOTHING)
        };
        let silence = silence(survey);
        let found = silence.reasons(&Lan::Network("lan".into()));
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("not one frame"), "{found:?}");
    }

    #[test]
    fn the_last_server_says_more_than_frames() {
        for (is_there, acknowledged, expected) in [
            (true, false, "its DHCP server is silent"),
            (true, true, "its pool may be full"),
            (false, true, "its pool may be full"),
            (false, false, "42 frames came in"),
        ] {
            let silence = Silence {
                server: Some(LastServer {
                    address: Ipv4Addr::new(192, 0, 2, 1),
                    is_there,
                    acknowledged,
                }),
                ..silence(received(52, NOTHING))
            };
            let found = silence.reasons(&Lan::Network("lan".into()));
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(expected), "{found:?}");
        }
    }
}
