//! An ADD: the network's configuration and the container's circumstances, as the core's [`Add`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_api::cni::{
    self, ClientId, Config, ConflictDetection, Error, Ipam, Request, RequestList, Route,
};
use leasehold_api::{ADD_TIMEOUT, add_timeout};
use leasehold_core::effect::{Add, ClientIdRule};
use leasehold_core::grant;
use leasehold_core::grant::policy::{Detection, OnChange, OnExpiry, Policy};
use leasehold_core::link::{ByName, Place};
use leasehold_core::profile::{GRACE, Profile, Wants};
use leasehold_core::source::{ClientProfile, Servers, Wanted};
use leasehold_core::wire::message::{ClientMessage, is_own};
use leasehold_core::wire::option::code::*;
use leasehold_core::wire::option::{REQUEST_LIST, fqdn};

use super::args::{self, Args};
use super::client_id::{self, MachineId};
use super::fallback;
use super::named::{Named, attachment, host_netns, lan};
use super::names::{Names, POD_NAME};
use super::refusal::{bad_config, bad_env, quoted, refused};

/// The longest host name, in bytes: that of a domain name without its last dot (RFC 1035 §2.3.4).
const MAX_HOSTNAME: usize = 253;

/// What is the same for all callers: the host, and how the daemon was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    /// The host's identity, if it has one.
    pub(crate) machine_id: Option<MachineId>,
    /// Whether to ask servers to answer by broadcast if a network says nothing or `auto`.
    pub(crate) broadcast: bool,
    /// How long an ADD may take if a network does not say.
    pub(crate) add_timeout: Duration,
}

impl Default for Site {
    fn default() -> Self {
        Self {
            machine_id: None,
            broadcast: false,
            add_timeout: ADD_TIMEOUT,
        }
    }
}

/// Reads an ADD.
pub(super) fn add(
    request: &Request,
    config: &Config,
    named: Named<'_>,
    site: &Site,
) -> Result<Add, Error> {
    let ipam = config.ipam().map_err(refused)?;
    let said = config.runtime_config().map_err(refused)?;
    let args = Args::parse(request.env.args.as_deref());
    let names = Names { named, args: &args };
    let mut provided = provided(&ipam, &args)?;
    let chaddr = args::chaddr(&said)?;
    let grace = grace(&ipam, &provided, chaddr.is_some());
    let client_id = client_id(&ipam, &mut provided, &names, site)?;
    let without_client_id = ipam.client_id == Some(ClientId::None);
    let wanted = args::wanted(config, &said, &args)?;
    // The children of an ipvlan's parent share its hardware address: a unicast to it goes to the parent.
    let on_parent = config.plugin.as_deref() == Some("ipvlan");
    if on_parent && without_client_id {
        let fault = "none does not work with ipvlan: all containers there have the hardware address of the interface's master, \
             by which alone a server would know them; choose another";
        return Err(bad_config("ipam.clientId", fault));
    }
    // An answer to a hardware address other than its own does not reach an interface either, and the daemon does not know whether
    // the main plugin has set the address that the runtime names.
    let broadcast = ipam
        .broadcast
        .unwrap_or(site.broadcast || on_parent || chaddr.is_some());
    let client = Arc::new(ClientProfile {
        broadcast,
        without_client_id,
        ..client(&ipam, provided, &names)?
    });
    let timeout = ipam
        .timeout
        .filter(|s| *s > 0.0)
        .map_or(site.add_timeout, |seconds| add_timeout(Some(seconds)));
    let release = ipam.release.unwrap_or(true);
    let policy = policy(&ipam);
    Ok(Add {
        attachment: attachment(named),
        limits: None,
        fallback: fallback::fallback(&ipam, timeout, site.machine_id)?,
        place: Place::InNetns(ByName {
            netns: cni::netns(&request.env)?,
            ifname: named.ifname.to_owned(),
            host_too: host_netns(request),
        }),
        lan: lan(config, named.network),
        client_id,
        chaddr,
        wanted: wanted.map(|address| Wanted {
            address,
            preferred: ipam.ip_preferred,
        }),
        profile: Profile {
            client,
            on_parent,
            is_router_on_host: config.is_router_on_host(),
            release,
            grace,
            policy,
            wants: Wants::default(),
        },
        timeout,
        hurried: Duration::ZERO,
    })
}

/// Returns how many seconds the lease of a DEL is kept, if its configuration says that its identity can return. Whatever is
/// unreadable is ignored: a DEL must succeed whatever its configuration says.
pub(super) fn grace_of_del(request: &Request, config: &Config) -> Option<u32> {
    let ipam = config.ipam().ok()?;
    let said = config.runtime_config().ok()?;
    let provided = provided(&ipam, &Args::parse(request.env.args.as_deref())).ok()?;
    grace(&ipam, &provided, said.mac.is_some())
}

/// Returns how many seconds a lease is kept if its identity can return; `None` if it cannot. `fixed_mac`: the runtime sets the
/// hardware address.
fn grace(ipam: &Ipam, provided: &BTreeMap<u8, &str>, fixed_mac: bool) -> Option<u32> {
    let by_kind = ipam
        .client_id
        .as_ref()
        .is_some_and(|kind| client_id::returns(kind, fixed_mac));
    (by_kind || provided.contains_key(&CLIENT_ID)).then_some(ipam.grace.unwrap_or(GRACE))
}

/// Returns what the incumbent would send for `provide`: of each option the last value, where `fromArg` wins over `value`. Omits
/// an option for which neither gives a value.
fn provided<'a>(ipam: &'a Ipam, args: &Args<'a>) -> Result<BTreeMap<u8, &'a str>, Error> {
    let mut provided = BTreeMap::new();
    for entry in &ipam.provide {
        let option = entry.option;
        if option == RAPID_COMMIT || (option != CLIENT_ID && is_own(option)) {
            let fault = format!("only the client itself may send option {option}");
            return Err(bad_config("ipam.provide", fault));
        }
        let arg = entry
            .from_arg
            .as_deref()
            .and_then(|key| Some((key, args.raw(key)?)));
        if let Some((key, value)) = arg
            && value.len() > 255
        {
            return Err(bad_env(
                "CNI_ARGS",
                format!("{key:.64} is longer than the 255 bytes of option {option}"),
            ));
        }
        if option == CLIENT_ID && entry.value.is_none() && entry.from_arg.is_none() {
            let fault =
                "option 61 has no value: to send none, leave it out and set clientId to \"none\"";
            return Err(bad_config("ipam.provide", fault));
        }
        if let Some(value) = arg.map(|(_, value)| value).or(entry.value.as_deref()) {
            provided.insert(option, value);
        }
    }
    Ok(provided)
}

/// An option in `provide` is sent with exactly the bytes given there, so 61 gets no type byte.
fn client_id(
    ipam: &Ipam,
    provided: &mut BTreeMap<u8, &str>,
    names: &Names<'_>,
    site: &Site,
) -> Result<ClientIdRule, Error> {
    once("clientId", ipam.client_id.is_some(), CLIENT_ID, provided)?;
    match provided.remove(&CLIENT_ID) {
        Some(bytes) => client_id::of_bytes("ipam.provide: option 61", bytes.into()),
        None => client_id::rule(
            ipam.client_id.as_ref().unwrap_or(&ClientId::Container),
            names,
            site.machine_id,
        ),
    }
}

/// Refuses an option that is set both by `provide` and by a key of ours: one of the two would have no effect.
fn once(key: &str, said: bool, option: u8, provided: &BTreeMap<u8, &str>) -> Result<(), Error> {
    if said && provided.contains_key(&option) {
        let fault = format!("ipam.provide sets option {option} too: leave one of them out");
        return Err(bad_config(&format!("ipam.{key}"), fault));
    }
    Ok(())
}

/// Returns what the client says and wants, except how servers should answer, which depends on the main plugin.
fn client(
    ipam: &Ipam,
    mut provided: BTreeMap<u8, &str>,
    names: &Names<'_>,
) -> Result<ClientProfile, Error> {
    // `provide` gives all of option 77 as bytes, which need not have the form of RFC 3004: they are sent unchanged.
    for (key, said, option) in [
        ("vendorClass", &ipam.vendor_class, VENDOR_CLASS),
        ("userClass", &ipam.user_class, USER_CLASS),
        ("hostname", &ipam.hostname, HOST_NAME),
        ("fqdn", &ipam.fqdn, FQDN),
    ] {
        once(key, said.is_some(), option, &provided)?;
    }
    let fits = |key, text: &Option<String>, most| match text {
        Some(text) if text.len() > most => {
            Err(bad_config(key, format!("longer than {most} bytes")))
        }
        text => Ok(text.clone()),
    };
    let named =
        |option: u8, provided: &mut BTreeMap<u8, &str>| provided.remove(&option).map(str::to_owned);
    let fqdn = said_fqdn(ipam, names)?;
    let hostname = said_hostname(ipam, names)?
        .or_else(|| named(HOST_NAME, &mut provided))
        .or_else(|| default_hostname(ipam, names));
    let one_name_only = fqdn.is_some() || provided.contains_key(&FQDN);
    let client = ClientProfile {
        // RFC 4702 §3.1: a client that sends 81 must not send 12.
        hostname: hostname.filter(|name| !name.is_empty() && !one_name_only),
        fqdn,
        vendor_class: fits("ipam.vendorClass", &ipam.vendor_class, 255)?
            .or_else(|| named(VENDOR_CLASS, &mut provided)),
        user_class: fits("ipam.userClass", &ipam.user_class, 254)?,
        provide: provided
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(option, value)| (option, value.into()))
            .collect(),
        request: request_list(&ipam.request),
        broadcast: false,
        rapid_commit: ipam.rapid_commit,
        without_client_id: false,
        servers: Servers {
            allow: ipam.servers.allow.clone(),
            deny: ipam.servers.deny.clone(),
        },
    };
    match length(&client) {
        0..=ClientMessage::EXTRA => Ok(client),
        long => {
            let fault = format!(
                "the options to send are {long} bytes long, but a message has room for {}",
                ClientMessage::EXTRA
            );
            Err(bad_config("ipam", fault))
        }
    }
}

/// Returns whether addresses are probed for, in the core's words.
pub(super) fn detection(said: ConflictDetection) -> Detection {
    match said {
        ConflictDetection::Optimistic => Detection::Optimistic,
        ConflictDetection::Strict => Detection::Strict,
        ConflictDetection::Off => Detection::Off,
    }
}

/// Returns what the interface should carry, except what depends on the main plugin (who adds which routes).
fn policy(ipam: &Ipam) -> Policy {
    Policy {
        detection: detection(ipam.conflict_detection),
        on_change: if ipam.keep_on_change {
            OnChange::Keep
        } else {
            OnChange::Apply
        },
        on_expiry: if ipam.keep_on_expiry {
            OnExpiry::Keep
        } else {
            OnExpiry::Remove
        },
        metric: ipam.priority,
        routes: ipam.routes.iter().map(extra_route).collect(),
        suppress_default_route: ipam.suppress_default_route,
        ..Policy::default()
    }
}

fn extra_route(said: &Route) -> grant::Route {
    let Route {
        dst,
        via,
        mtu,
        advmss,
        priority: metric,
        table,
        scope,
    } = *said;
    grant::Route {
        metric,
        mtu,
        advmss,
        table,
        scope,
        ..grant::Route::new(dst, via)
    }
}

/// Returns how many bytes a client's options take in a message.
fn length(client: &ClientProfile) -> usize {
    let ClientProfile {
        hostname,
        fqdn: name,
        vendor_class,
        user_class,
        provide,
        rapid_commit,
        ..
    } = client;
    let texts = [hostname, vendor_class]
        .into_iter()
        .flatten()
        .map(String::len);
    let user_class = user_class.iter().map(|class| 1 + class.len());
    let name = name.iter().filter_map(|name| Some(fqdn(name)?.len()));
    let provide = provide.iter().map(|(_, value)| value.len());
    let rapid_commit = rapid_commit.then_some(0);
    texts
        .chain(user_class)
        .chain(name)
        .chain(provide)
        .chain(rapid_commit)
        .map(|length| 2 + length)
        .sum()
}

/// Returns the parameter request list if it is not the default one: the default, unless skipped, and the additional options. 121
/// and 249 go before 3 and 33, which they replace (RFC 3442: MUST).
fn request_list(said: &RequestList) -> Option<Vec<u8>> {
    if *said == RequestList::default() {
        return None;
    }
    let default: &[u8] = if said.skip_default { &[] } else { REQUEST_LIST };
    let mut list = Vec::new();
    for option in default.iter().chain(&said.options) {
        if !list.contains(option) {
            list.push(*option);
        }
    }
    let replaced = list
        .iter()
        .position(|option| matches!(*option, ROUTER | STATIC_ROUTE));
    if let Some(at) = replaced {
        list[at..].sort_by_key(|option| !matches!(*option, CLASSLESS_ROUTES | MICROSOFT_ROUTES));
    }
    Some(list)
}

/// Returns the host name from the configuration, empty if the configuration asks for none.
fn said_hostname(ipam: &Ipam, names: &Names<'_>) -> Result<Option<String>, Error> {
    const KEY: &str = "ipam.hostname";
    let Some(template) = &ipam.hostname else {
        return Ok(None);
    };
    let name = names.expand(KEY, template)?;
    if template.is_empty() || is_hostname(&name) {
        Ok(Some(name))
    } else {
        Err(bad_name(KEY, &name))
    }
}

/// Returns the pod's name, if that is a valid host name.
fn default_hostname(ipam: &Ipam, names: &Names<'_>) -> Option<String> {
    let pod = ipam.hostname.is_none().then(|| names.args.get(POD_NAME))?;
    pod.filter(|pod| is_hostname(pod)).map(str::to_owned)
}

fn said_fqdn(ipam: &Ipam, names: &Names<'_>) -> Result<Option<String>, Error> {
    const KEY: &str = "ipam.fqdn";
    let Some(template) = &ipam.fqdn else {
        return Ok(None);
    };
    let name = names.expand(KEY, template)?;
    let good = is_hostname(name.strip_suffix('.').unwrap_or(&name)) && fqdn(&name).is_some();
    if good {
        Ok(Some(name))
    } else {
        Err(bad_name(KEY, &name))
    }
}

fn bad_name(key: &str, name: &str) -> Error {
    bad_config(key, format!("{} is not a valid host name", quoted(name)))
}

/// Returns whether servers and their DNS accept `text` as a host name.
pub(super) fn is_hostname(text: &str) -> bool {
    (1..=MAX_HOSTNAME).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
