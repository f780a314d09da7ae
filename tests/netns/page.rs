//! The exporter's page in a browser: it follows events, and everybody can use it.

use std::collections::BTreeSet;

use netns_fixtures::model::Config;
use netns_fixtures::server::ModelServer;
use netns_fixtures::{Browser, CallError, Lab, Lan, Need, Process, sandbox};
use serde_json::{Value, json};

use crate::exporter::start_exporter;

/// The accessibility checker, from npm: tests/run puts it there.
const AXE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../target/npm/node_modules/axe-core/axe.min.js"
);

/// Makes the page show this many made-up leases, in all states, one in ten from a local range.
const MANY: &str = "(async count => {
    const states = ['BOUND', 'BOUND', 'BOUND', 'RENEWING', 'REBINDING', 'KEPT', 'SELECTING'];
    const attachment = n => ({door: 'cni', network: `lan${n % 3}`, container: `web-${n}`, ifname: 'net1'});
    const lease = n => ({
        attachment: attachment(n), address: `10.7.${n >> 8}.${n & 255}/16`, state: states[n % 7],
        server: `10.7.0.${1 + n % 2}`, seconds_to_expiry: 3600 - n, lease_seconds: 3600,
    });
    const ofRange = n => ({
        attachment: attachment(n), address: `192.168.${n >> 8}.${n & 255}/16`, state: 'BOUND', source: 'range',
    });
    const bindings = [...Array(count).keys()].map(n => n % 10 === 9 ? ofRange(n) : lease(n));
    window.fetch = async () => new Response(JSON.stringify({bindings}));
    await load();
})";

/// Makes the page show this many made-up leases in an outage: of five, one is lost, two are not extended.
const OUTAGE: &str = "(async count => {
    const lease = n => ({
        attachment: {door: 'cni', network: `lan${n % 3}`, container: `web-${n}`, ifname: 'net1'},
        name: `shop/checkout-7d9c6b5f8-x2lkp${n}`, server: '10.7.0.1', lease_seconds: 43200,
        address: `10.7.0.${n}/16`, state: 'BOUND', seconds_to_expiry: 40000,
        ...[{}, {}, {state: 'RENEWING', asked_in_vain: 12}, {state: 'REBINDING', asked_in_vain: 14},
            {state: 'SELECTING', lost: true, address: undefined, seconds_to_expiry: undefined}][n % 5],
    });
    const troubles = [{
        kind: 'no_address', grave: true, since: '2026-11-28T05:00:00.000Z', count: 10,
        sentence: '10 containers on eth0 have no address: shop/checkout-7d9c6b5f8-x2lkp4 and 9 more',
        remedy: '`leasehold events` says how it was lost',
    }];
    const servers = [{server: '10.7.0.1', lan: {parent: 'eth0', vlan: 0}, leases: 40, seconds_silent: 1800}];
    const status = {host: 'node-17.example.net', version: '0.1.0', troubles, servers};
    const bindings = [...Array(count).keys()].map(lease);
    window.fetch = async path => new Response(JSON.stringify(path === '/status' ? status : {bindings}));
    await load();
})";

/// What the page lists, from top to bottom.
const ORDER: &str =
    "[...document.querySelectorAll('#rows .who span')].map(name => name.textContent)";

/// Returns an expression that is true when the page lists this many leases.
fn rows(count: usize) -> String {
    format!("document.querySelectorAll('#rows tr').length === {count}")
}

/// Returns an expression that is true when the page says this about the daemon.
fn daemon_is(said: &str) -> String {
    format!("document.getElementById('daemon')?.textContent.startsWith('{said}')")
}

/// A LAN with a server of short leases, a daemon, its exporter, and a browser with the page.
struct Scene {
    // The LAN goes last: those above are on it.
    browser: Browser,
    _exporter: Process,
    _server: ModelServer,
    lab: Lab,
}

impl Scene {
    /// Returns the scene once the page is connected to the daemon; `None` if something is missing.
    fn new() -> Result<Option<Self>, CallError> {
        let Some(sandbox) = sandbox(&[Need::Program("chromium"), Need::File(AXE)]) else {
            return Ok(None);
        };
        let lab = Lab::with_read_socket(&sandbox)?;
        let server = ModelServer::start(&lab.lan, Config::new(Lan::SUBNET).lasting(12))?;
        let exporter = start_exporter(&lab)?;
        let mut browser = Browser::start(&lab.lan.host)?;
        browser.open("http://127.0.0.1:9467/")?;
        browser.wait_for(&daemon_is("The daemon answers"))?;
        browser.evaluate("window.loaded = 'once'")?;
        Ok(Some(Self {
            lab,
            browser,
            _server: server,
            _exporter: exporter,
        }))
    }
}

#[test]
fn the_page_follows_what_happens_and_loads_nothing_else() -> Result<(), CallError> {
    let Some(mut scene) = Scene::new()? else {
        return Ok(());
    };
    let Scene { lab, browser, .. } = &mut scene;
    let first = lab.attach("c1")?;
    browser.wait_for(&rows(1))?;
    let second = lab.attach("c2")?;
    browser.wait_for(&rows(2))?;
    assert_eq!(browser.evaluate(ORDER)?, json!(["c1", "c2"]));
    browser.wait_for("document.getElementById('events').textContent.includes('renewed')")?;
    // Events name containers as the table does, also those that came before the table.
    browser.wait_for("[...document.querySelectorAll('#events span')].every(line => /^c[12][:,]/.test(line.textContent))")?;
    lab.detach(&second)?;
    browser.wait_for(&rows(1))?;

    lab.terminate()?;
    browser.wait_for(&daemon_is("The daemon does not answer"))?;
    lab.start_daemon()?;
    browser.wait_for(&daemon_is("The daemon answers"))?;
    let third = lab.attach("c3")?;
    browser.wait_for(&rows(2))?;
    let told = "[...document.getElementById('events').children].map(line => line.id)";
    let told = browser.evaluate(told)?;
    let once: BTreeSet<_> = told
        .as_array()
        .into_iter()
        .flatten()
        .map(Value::to_string)
        .collect();
    let found = told.as_array().map(Vec::len);
    assert_eq!(found, Some(once.len()), "told twice: {told}");

    // It was loaded again.
    assert_eq!(browser.evaluate("window.loaded")?, json!("once"));
    let loaded = "[...new Set(performance.getEntriesByType('resource').map(entry => new URL(entry.name)))]\
        .map(url => url.origin + url.pathname).filter((url, n, all) => all.indexOf(url) === n).sort()";
    let own = ["events", "leases", "status"].map(|path| format!("http://127.0.0.1:9467/{path}"));
    let loaded = browser.evaluate(loaded)?;
    assert!(
        loaded
            .as_array()
            .expect("a list")
            .iter()
            .all(|url| own.iter().any(|own| url == own)),
        "{loaded}"
    );
    assert_eq!(browser.evaluate("document.cookie")?, json!(""));
    lab.detach(&first)?;
    lab.detach(&third)?;
    Ok(())
}

#[test]
fn the_page_sorts_and_searches_by_keyboard_too() -> Result<(), CallError> {
    let Some(mut scene) = Scene::new()? else {
        return Ok(());
    };
    let Scene { lab, browser, .. } = &mut scene;
    let members = [lab.attach("c1")?, lab.attach("c2")?];
    browser.wait_for(&rows(2))?;
    browser.evaluate("document.querySelector('[data-key=who]').click()")?;
    assert_eq!(browser.evaluate(ORDER)?, json!(["c2", "c1"]));
    let sorted = "document.querySelector('th').getAttribute('aria-sort')";
    assert_eq!(browser.evaluate(sorted)?, json!("descending"));
    browser.type_keys("/c1 bou")?;
    let found = browser.evaluate("document.getElementById('search').value")?;
    assert_eq!(found, json!("c1 bou"));
    browser.wait_for(&rows(1))?;
    assert_eq!(browser.evaluate(ORDER)?, json!(["c1"]));
    assert_eq!(
        browser.evaluate("document.getElementById('shown').textContent")?,
        json!("1 of 2")
    );
    browser.evaluate(
        "const field = document.getElementById('search'); field.value = ''; field.dispatchEvent(new Event('input'))",
    )?;
    // From the search over the table, which scrolls by keyboard, to its first heading.
    for focused in ["Table of leases", "Container"] {
        browser.press("Tab")?;
        let named = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent";
        assert_eq!(browser.evaluate(named)?, json!(focused));
    }
    browser.press("Enter")?;
    assert_eq!(browser.evaluate(ORDER)?, json!(["c1", "c2"]));
    members.iter().try_for_each(|member| lab.detach(member))
}

#[test]
fn the_page_is_accessible_and_fast_with_a_thousand_leases() -> Result<(), CallError> {
    let Some(mut scene) = Scene::new()? else {
        return Ok(());
    };
    let Scene { lab, browser, .. } = &mut scene;
    let member = lab.attach("c1")?;
    browser.wait_for(&rows(1))?;
    let axe = std::fs::read_to_string(AXE).expect("it was looked for");
    browser.evaluate(&format!("{axe};null"))?;
    for count in [1, 50, 1000] {
        if count > 1 {
            browser.evaluate(&format!("{MANY}({count})"))?;
            browser.wait_for(&rows(count))?;
        }
        for dark in [false, true] {
            browser.prefer_dark(dark)?;
            assert_eq!(broken(browser)?, json!([]), "{count} leases, dark: {dark}");
        }
    }
    // A second changes only what is visible.
    let changed = "(async () => {
        await new Promise(seen => requestAnimationFrame(() => setTimeout(seen)));
        const watch = new MutationObserver(() => {});
        watch.observe(document.getElementById('rows'), {subtree: true, childList: true, characterData: true, attributes: true});
        asked -= 60000;
        tick();
        return watch.takeRecords().length;
    })()";
    let changed = browser.evaluate(changed)?.as_u64().expect("a number");
    assert!((1..200).contains(&changed), "{changed} changes");
    lab.detach(&member)
}

#[test]
fn an_outage_stands_on_top_and_a_phone_shows_what_matters() -> Result<(), CallError> {
    let Some(mut scene) = Scene::new()? else {
        return Ok(());
    };
    let Scene { lab, browser, .. } = &mut scene;
    let member = lab.attach("c1")?;
    browser.wait_for(&rows(1))?;
    let axe = std::fs::read_to_string(AXE).expect("it was looked for");
    browser.evaluate(&format!("{axe};null"))?;
    browser.evaluate(&format!("{OUTAGE}(50)"))?;
    browser.wait_for(&rows(50))?;
    let summary = "document.getElementById('summary').textContent";
    assert_eq!(
        browser.evaluate(summary)?,
        json!("40 leases in 3 networks, 20 not extended, 10 lost")
    );
    let first = "[...document.querySelectorAll('#rows tr')].slice(0, 11).map(row => row.className)";
    let first = browser.evaluate(first)?;
    let classes: Vec<_> = first.as_array().into_iter().flatten().collect();
    assert!(
        classes.len() == 11
            && classes[..10]
                .iter()
                .all(|of| of.as_str().is_some_and(|of| of.contains("bad"))),
        "lost leases stand first, and are red: {first}"
    );
    let fits = "[document.documentElement, ...document.querySelectorAll('.wide')].every(it => it.scrollWidth <= it.clientWidth)";
    let seen = "[...document.querySelectorAll('#rows tr:first-child :is(.who span, .state, .left span)')]\
        .every(it => { const at = it.getBoundingClientRect(); return at.width > 0 && at.left >= 0 && at.right <= innerWidth; })";
    for size in [(1280, 900), (390, 844)] {
        browser.resize(size.0, size.1)?;
        for dark in [false, true] {
            browser.prefer_dark(dark)?;
            assert_eq!(browser.evaluate(fits)?, json!(true), "{size:?}");
            assert_eq!(browser.evaluate(seen)?, json!(true), "{size:?}");
            assert_eq!(broken(browser)?, json!([]), "{size:?}, dark: {dark}");
        }
    }
    lab.detach(&member)
}

/// Returns the rules that the page breaks, each with the places where it does.
fn broken(browser: &mut Browser) -> Result<Value, CallError> {
    let places = "axe.run().then(found => found.violations.map(broken => \
        `${broken.id}: ${broken.nodes.map(node => node.target.join(' ')).join(', ')}`))";
    Ok(browser.evaluate(places)?)
}
