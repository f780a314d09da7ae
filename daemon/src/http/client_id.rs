//! Option 61: how each kind of `clientId` is made.
//!
//! | kind | bytes | who is recognised |
//! |---|---|---|
//! | `container` | 0, `container/network/interface` cut to 254 bytes | the container: the incumbent's bytes |
//! | `mac` | 1, the hardware address (RFC 2132 §9.14) | the interface |
//! | `none` | none | the interface |
//! | `pod` | 0, `namespace/name/interface` | a StatefulSet's pod, each time it is recreated |
//! | `duid` | 255, IAID, DUID-UUID (RFC 4361 §6.1, RFC 6355) | the container, as one of this host |
//! | `text:…` | 0, the text with its placeholders filled in | whoever sends it |
//! | `hex:…` | as given, type byte first | whoever sends them |
//!
//! Type 0 is for identifiers that are not hardware addresses; dnsmasq's `id:` leaves it out when it compares.
//!
//! Names may be long, and Kea accepts no identifier above 128 bytes. Of a longer text ([`LONGEST`]), the first 63 bytes are sent,
//! by which a person finds the container in the server's list, followed by the SHA-256 of the whole text as 64 hexadecimal
//! digits: two hosts derive the same identifier for one pod, and no two pods share one. Bytes that somebody chose (`hex:…`,
//! option 61 of `provide`) are sent unchanged.

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use leasehold_api::cni::{ClientId as Kind, Error};
use leasehold_core::effect::ClientIdRule;
use leasehold_core::identity::ClientId;
use sha2::{Digest, Sha256};

use super::named::Named;
use super::names::{Names, POD_NAME, POD_NAMESPACE};
use super::refusal::bad_config;

/// The key of `clientId` in the configuration, for errors.
const KEY: &str = "ipam.clientId";

/// The longest identifier that every known server accepts, in bytes.
const LONGEST: usize = 128;

/// The host's identity (machine-id(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MachineId([u8; 16]);

impl MachineId {
    /// leasehold's own number, so that no other program derives the same identifier.
    const APPLICATION: [u8; 16] = 0x0c1d_5b02_9f4e_4a7b_a3d6_6e85_71f2_48c9_u128.to_be_bytes();

    /// Returns a number derived from the host.
    pub(crate) fn place(self) -> u128 {
        u128::from_be_bytes(self.uuid())
    }

    /// Reads the text of `/etc/machine-id`. On a host that has no identity yet, the file contains a word instead.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.trim_end();
        let all_hex = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = all_hex.then(|| u128::from_str_radix(digits, 16).ok())?;
        number
            .filter(|number| *number != 0)
            .map(|number| Self(number.to_be_bytes()))
    }

    /// Returns a UUID of this host that does not reveal the machine id, which machine-id(5) asks to keep from networks.
    /// `systemd-id128 machine-id --app-specific=0c1d5b029f4e4a7ba3d66e8571f248c9 --uuid` prints the same.
    fn uuid(self) -> [u8; 16] {
        let mut hmac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        hmac.update(&Self::APPLICATION);
        let bytes = hmac.finalize().into_bytes();
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&bytes[..16]);
        // Version 4, variant 1 (RFC 9562 §5.4).
        uuid[6] = uuid[6] & 0x0f | 0x40;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        uuid
    }
}

/// Returns how the attachment's client identifier is made.
///
/// # Errors
/// 7 if something that the kind needs is missing, or if the identifier does not fit option 61; 4 for an invalid pod
/// name.
pub(super) fn rule(
    kind: &Kind,
    names: &Names<'_>,
    machine: Option<MachineId>,
) -> Result<ClientIdRule, Error> {
    match kind {
        // Without an identifier, servers know the client by its hardware address.
        Kind::Mac | Kind::None => Ok(ClientIdRule::Mac),
        // The incumbent's, so that a server recognises its containers: cut to fit option 61.
        Kind::Container => {
            let path = path_of(names.named);
            let mut whole = untyped(&path);
            whole.truncate(255);
            of_whole(&path, whole)
        }
        Kind::Pod => of_text(&of_pod(names)?),
        Kind::Duid => {
            let missing = || {
                bad_config(
                    KEY,
                    "duid needs the host's /etc/machine-id: run systemd-machine-id-setup",
                )
            };
            of_bytes(
                KEY,
                of_host(&path_of(names.named), machine.ok_or_else(missing)?),
            )
        }
        Kind::Hex(bytes) => of_bytes(KEY, bytes.clone()),
        Kind::Text(template) => of_text(&names.expand(KEY, template)?),
    }
}

/// Returns whether an identity may return with another container. `fixed_mac`: the runtime sets the hardware address.
///
/// The DUID's IAID depends on the container's id too, which engines keep when they restart a container.
pub(super) fn returns(kind: &Kind, fixed_mac: bool) -> bool {
    match kind {
        Kind::Container => false,
        Kind::Mac | Kind::None => fixed_mac,
        Kind::Pod | Kind::Duid | Kind::Hex(_) | Kind::Text(_) => true,
    }
}

/// Returns the rule for these bytes, which were given at `key`.
pub(super) fn of_bytes(key: &str, bytes: Vec<u8>) -> Result<ClientIdRule, Error> {
    ClientId::new(bytes)
        .map(ClientIdRule::Bytes)
        .map_err(|fault| bad_config(key, fault))
}

/// Returns a text as an identifier: type byte 0, then the text.
pub(super) fn untyped(text: &str) -> Vec<u8> {
    std::iter::once(0).chain(text.bytes()).collect()
}

/// Returns the rule for a text.
fn of_text(text: &str) -> Result<ClientIdRule, Error> {
    of_whole(text, untyped(text))
}

/// Returns the rule for a text, of which `whole` was sent before long texts were hashed.
fn of_whole(text: &str, whole: Vec<u8>) -> Result<ClientIdRule, Error> {
    if whole.len() <= LONGEST {
        return of_bytes(KEY, whole);
    }
    // A longer one than option 61 can hold was never sent.
    let known = ClientId::new(whole).ok();
    Ok(ClientIdRule::Hashed {
        sent: hashed(text),
        known,
    })
}

/// Returns the identifier that is sent for a long text.
fn hashed(text: &str) -> ClientId {
    let digits = HEXLOWER.encode(&Sha256::digest(text));
    let mut bytes = untyped(text);
    bytes.truncate(LONGEST - digits.len());
    bytes.extend(digits.bytes());
    ClientId::new(bytes).expect("128 bytes fit option 61")
}

fn path_of(
    Named {
        network,
        container,
        ifname,
    }: Named<'_>,
) -> String {
    format!("{container}/{network}/{ifname}")
}

fn of_pod(names: &Names<'_>) -> Result<String, Error> {
    let namespace = names.arg(KEY, "pod", POD_NAMESPACE)?;
    let pod = names.arg(KEY, "pod", POD_NAME)?;
    Ok(format!("{namespace}/{pod}/{}", names.named.ifname))
}

/// Returns the identifier of something with this name on the host with this identity (RFC 4361 §6.1).
///
/// The IAID distinguishes the host's attachments. It is a hash of the name, because the daemons that run on a host over time have
/// no place in common to count attachments; a collision is refused as one identity with two holders.
pub(super) fn of_host(name: &str, machine: MachineId) -> Vec<u8> {
    const TYPE: u8 = 255;
    const DUID_UUID: [u8; 2] = [0, 4];
    let iaid = &Sha256::digest(name)[..4];
    [&[TYPE][..], iaid, &DUID_UUID, &machine.uuid()].concat()
}

#[cfg(test)]
mod tests {
    use leasehold_core::wire::Mac;

    use super::super::args::Args;
    use super::*;

    fn made(kind: &Kind, args: &str, machine: Option<MachineId>) -> Result<Vec<u8>, String> {
        let named = Named {
            network: "lan",
            container: "abc",
            ifname: "net1",
        };
        let names = Names {
            named,
            args: &Args::parse(Some(args)),
        };
        let rule = rule(kind, &names, machine).map_err(|error| error.msg)?;
        Ok(rule.resolve(Mac([2, 0, 0, 0, 0, 9])).as_bytes().to_vec())
    }

    #[test]
    fn a_long_text_is_sent_as_its_head_and_its_hash() {
        let text = |length: usize| Kind::Text("x".repeat(length));
        assert_eq!(
            made(&text(127), "", None).unwrap(),
            untyped(&"x".repeat(127))
        );
        for length in [128, 254, 255, 500] {
            let id = made(&text(length), "", None).unwrap();
            assert_eq!(
                (id.len(), &id[..64]),
                (128, &untyped(&"x".repeat(63))[..]),
                "{length}"
            );
            assert_ne!(id, made(&text(length + 1), "", None).unwrap());
        }
        // Fixed: servers recognise containers by it.
        let id = String::from_utf8(made(&text(128), "", None).unwrap()[64..].to_vec()).unwrap();
        assert_eq!(
            id,
            "24da1b81d0b16df6428eee73c69fcb2a93c76bc6df706f0c6670fe6bfe800464"
        );
        let pod = format!(
            "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-{}",
            "0".repeat(200)
        );
        assert!(
            made(&Kind::Pod, &pod, None)
                .unwrap()
                .starts_with(b"\0shop/web-0")
        );
        // Bytes are sent as they are.
        assert_eq!(made(&Kind::Hex(vec![7; 255]), "", None), Ok(vec![7; 255]));
    }

    #[test]
    fn a_long_network_name_still_tells_containers_apart() {
        let network = "n".repeat(250);
        let container = "c".repeat(64);
        let of = |ifname| {
            let named = Named {
                network: &network,
                container: &container,
                ifname,
            };
            let args = &Args::default();
            rule(&Kind::Container, &Names { named, args }, None).unwrap()
        };
        let (ClientIdRule::Hashed { sent, known }, ClientIdRule::Hashed { sent: other, .. }) =
            (of("eth0"), of("eth1"))
        else {
            panic!("these are long");
        };
        assert_ne!(sent, other);
        assert_eq!(known.map(|known| known.as_bytes().len()), Some(255));
    }

    #[test]
    fn a_duid_is_the_hosts_and_never_changes() {
        let machine = MachineId::parse("0123456789abcdef0123456789abcdef\n").unwrap();
        let id = made(&Kind::Duid, "", Some(machine)).unwrap();
        let hex = HEXLOWER.encode(&id);
        // Fixed: servers recognise the host's containers by it.
        assert_eq!(hex, "ffc0bd90ab00043d88f6e59d324950a9ad84c20ebefb46");
        assert!(!hex.contains("0123456789abcdef"));
    }

    #[test]
    fn a_machine_id_is_32_digits() {
        for bad in [
            "",
            "uninitialized\n",
            &"0".repeat(32),
            &"a".repeat(31),
            &"a".repeat(33),
            &"+".repeat(32),
        ] {
            assert_eq!(MachineId::parse(bad), None, "{bad}");
        }
        assert!(MachineId::parse(&"a".repeat(32)).is_some());
    }
}
