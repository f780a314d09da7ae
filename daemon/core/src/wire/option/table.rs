//! The one table of DHCP options: which are asked for, how each is read, and how people write it.

use super::value::{self, Value};
use super::{BadOption, Options};

/// How an option's value is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionForm {
    /// One address or several.
    Addresses,
    /// Text of any bytes.
    Text,
    /// A number of one, two or four bytes.
    Number,
    /// A number of seconds.
    Seconds,
    /// Names in DNS wire form (RFC 3397).
    Names,
    /// Destinations and routers (33, 121, 249).
    Routes,
    /// Anything else.
    Bytes,
}

macro_rules! table {
    (
        |$options:ident, $value:ident, $note:ident|
        asked { $($asked:literal $asked_const:ident $asked_name:literal $asked_form:ident => $ask:expr;)* }
        read { $($read:literal $read_const:ident $read_name:literal $read_form:ident => $reads:expr;)* }
        sent { $($sent:literal $sent_const:ident $sent_name:literal $sent_form:ident;)* }
        shown { $($shown:literal $shown_name:literal $shown_form:ident;)* }
    ) => {
        /// The numbers of the options that this client knows (IANA, BOOTP vendor extensions and DHCP options).
        #[allow(missing_docs, reason = "the names say it")]
        pub mod code {
            pub const PAD: u8 = 0;
            pub const END: u8 = 255;
            $(pub const $asked_const: u8 = $asked;)*
            $(pub const $read_const: u8 = $read;)*
            $(pub const $sent_const: u8 = $sent;)*
        }

        /// The options that a client asks for (55), in this order on the wire.
        pub const REQUEST_LIST: &[u8] = &[$($asked),*];

        /// All options: number, name, form.
        pub const OPTIONS: &[(u8, &str, OptionForm)] = &[
            $(($asked, $asked_name, OptionForm::$asked_form),)*
            $(($read, $read_name, OptionForm::$read_form),)*
            $(($sent, $sent_name, OptionForm::$sent_form),)*
            $(($shown, $shown_name, OptionForm::$shown_form),)*
        ];

        /// Reads one option. Parts of a list that it drops are noted; an error drops the whole option.
        pub(super) fn read(
            $options: &mut Options,
            code: u8,
            $value: Value<'_>,
            $note: &mut impl FnMut(BadOption),
        ) -> Result<(), BadOption> {
            match code {
                $($asked => $ask,)*
                $($read => $reads,)*
                _ => {}
            }
            Ok(())
        }
    };
}

// The names are those of `request` and `provide` in a network's configuration, and otherwise those that the configurations of
// DHCP servers share. What no container can be given is not asked for. 121 goes before 249, 3 and 33 (RFC 3442).
table! { |options, value, note|
    asked {
        1 SUBNET_MASK "subnet-mask" Addresses => options.subnet_mask = Some(value::mask(&value)?);
        121 CLASSLESS_ROUTES "classless-static-routes" Routes => options.classless_routes = Some(value::classless_routes(&value.bytes, note)?);
        249 MICROSOFT_ROUTES "ms-classless-static-routes" Routes => options.microsoft_routes = Some(value::classless_routes(&value.bytes, note)?);
        3 ROUTER "routers" Addresses => options.routers = value::hosts(&value.bytes, note)?;
        33 STATIC_ROUTE "static-routes" Routes => options.static_routes = value::static_routes(&value.bytes, note)?;
        6 DOMAIN_NAME_SERVER "domain-name-servers" Addresses => options.dns = value::hosts(&value.bytes, note)?;
        15 DOMAIN_NAME "domain-name" Text => options.domains = value::domains(&value.bytes, note)?;
        26 INTERFACE_MTU "interface-mtu" Number => options.mtu = Some(value::mtu(&value)?);
        51 LEASE_TIME "dhcp-lease-time" Seconds => options.lease_time = Some(value::u32(&value)?);
        54 SERVER_ID "dhcp-server-identifier" Addresses => options.server_id = Some(value::host(&value)?);
        58 T1 "dhcp-renewal-time" Seconds => options.t1 = Some(value::u32(&value)?);
        59 T2 "dhcp-rebinding-time" Seconds => options.t2 = Some(value::u32(&value)?);
        119 DOMAIN_SEARCH "domain-search" Names => options.search = value::search(&value.bytes, note)?;
    }
    read {
        // These two are read before all others.
        52 OVERLOAD "dhcp-option-overload" Number => {};
        53 MESSAGE_TYPE "dhcp-message-type" Number => {};
        56 MESSAGE "dhcp-message" Text => options.message = Some(value::text(&value.bytes)?);
        61 CLIENT_ID "dhcp-client-identifier" Bytes => options.client_id = Some(value::bytes(value)?);
        80 RAPID_COMMIT "rapid-commit" Bytes => options.rapid_commit = value::flag(&value)?;
    }
    sent {
        12 HOST_NAME "host-name" Text;
        50 REQUESTED_ADDRESS "dhcp-requested-address" Addresses;
        55 PARAMETER_REQUEST_LIST "dhcp-parameter-request-list" Bytes;
        57 MAX_MESSAGE_SIZE "dhcp-max-message-size" Number;
        60 VENDOR_CLASS "vendor-class-identifier" Text;
        77 USER_CLASS "user-class" Bytes;
        81 FQDN "fqdn" Bytes;
        82 RELAY_AGENT "relay-agent-information" Bytes;
    }
    shown {
        2 "time-offset" Number;
        4 "time-servers" Addresses;
        7 "log-servers" Addresses;
        9 "lpr-servers" Addresses;
        13 "boot-size" Number;
        17 "root-path" Text;
        19 "ip-forwarding" Number;
        23 "default-ip-ttl" Number;
        28 "broadcast-address" Addresses;
        31 "router-discovery" Number;
        35 "arp-cache-timeout" Seconds;
        40 "nis-domain" Text;
        41 "nis-servers" Addresses;
        42 "ntp-servers" Addresses;
        43 "vendor-encapsulated-options" Bytes;
        44 "netbios-name-servers" Addresses;
        46 "netbios-node-type" Number;
        47 "netbios-scope" Text;
        66 "tftp-server-name" Text;
        67 "bootfile-name" Text;
        69 "smtp-servers" Addresses;
        100 "posix-timezone" Text;
        101 "tzdb-timezone" Text;
        108 "v6-only-preferred" Seconds;
        114 "captive-portal" Text;
        116 "auto-config" Number;
        150 "tftp-server-addresses" Addresses;
        252 "wpad" Text;
    }
}
