//! The exporter's page in a browser: it follows what happens, and can be used by everybody. `LEASEHOLD_PICTURES=DIR` keeps pictures.

use std::path::PathBuf;

use netns_fixtures::model::Config;
use netns_fixtures::server::ModelServer;
use netns_fixtures::{Browser, CallError, Lab, Lan, Need, sandbox};
use serde_json::{Value, json};

use crate::exporter::start_exporter;

/// What judges accessibility, from npm: tests/run puts it there.
const AXE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/npm/node_modules/axe-core/axe.min.js");

/// Has the page show so many made-up leases, in all states.
const MANY: &str = "(async count => {
    const states = ['BOUND', 'BOUND', 'BOUND', 'RENEWING', 'REBINDING', 'KEPT', 'SELECTING'];
    const lease = n => ({
        attachment: {door: 'cni', network: `lan${n % 3}`, container: `web-${n}`, ifname: 'net1'},
        address: `10.7.${n >> 8}.${n & 255}/16`, state: states[n % 7], server: `10.7.0.${1 + n % 2}`,
        seconds_to_expiry: 3600 - n, lease_seconds: 3600,
    });
    const bindings = Array.from({length: count}, (_, n) => lease(n));
    window.fetch = async () => new Response(JSON.stringify({bindings}));
    await load();
})";

/// Returns the rules that the page breaks, each with the places.
fn broken(browser: &mut Browser) -> Result<Value, CallError> {
    let places = "axe.run().then(found => found.violations.map(broken => \
        `${broken.id}: ${broken.nodes.map(node => node.target.join(' ')).join(', ')}`))";
    Ok(browser.evaluate(places)?)
}

#[test]
fn the_page_follows_what_happens_and_everybody_can_use_it() -> Result<(), CallError> {
    let Some(sandbox) = sandbox(&[Need::Program("chromium"), Need::File(AXE)]) else { return Ok(()) };
    let mut lab = Lab::without_daemon(&sandbox)?;
    lab.home().with_read_socket()?;
    lab.start_daemon()?;
    let _server = ModelServer::start(&lab.lan, Config { lease: 12, ..Config::new(Lan::SUBNET) })?;
    let _exporter = start_exporter(&lab)?;
    let first = lab.attach("c1")?;

    let mut browser = Browser::start(&lab.lan.host)?;
    browser.open("http://127.0.0.1:9467/")?;
    let rows = |count: usize| format!("document.querySelectorAll('#rows tr').length === {count}");
    browser.wait_for(&rows(1))?;
    browser.wait_for("document.getElementById('daemon').textContent === 'The daemon answers'")?;
    browser.evaluate("window.loaded = 'once'")?;
    let second = lab.attach("c2")?;
    browser.wait_for(&rows(2))?;
    browser.wait_for("document.getElementById('events').textContent.includes('renewed')")?;
    assert_eq!(browser.evaluate("window.loaded")?, json!("once"), "it was loaded again");

    let order = "[...document.querySelectorAll('#rows .who span')].map(name => name.textContent)";
    assert_eq!(browser.evaluate(order)?, json!(["c1", "c2"]));
    browser.evaluate("document.querySelector('[data-key=who]').click()")?;
    assert_eq!(browser.evaluate(order)?, json!(["c2", "c1"]));
    let sorted = "document.querySelector('th').getAttribute('aria-sort')";
    assert_eq!(browser.evaluate(sorted)?, json!("descending"));
    browser.type_keys("/c1 bou")?;
    assert_eq!(browser.evaluate("document.getElementById('search').value")?, json!("c1 bou"));
    browser.wait_for(&rows(1))?;
    assert_eq!(browser.evaluate(order)?, json!(["c1"]));
    browser.evaluate(
        "const field = document.getElementById('search'); field.value = ''; field.dispatchEvent(new Event('input'))",
    )?;
    lab.detach(&second)?;
    browser.wait_for(&rows(1))?;

    let axe = std::fs::read_to_string(AXE).expect("it was looked for");
    browser.evaluate(&format!("{axe};null"))?;
    let pictures = std::env::var_os("LEASEHOLD_PICTURES").map(PathBuf::from);
    for count in [1, 50, 1000] {
        if count > 1 {
            browser.evaluate(&format!("{MANY}({count})"))?;
            browser.wait_for(&rows(count))?;
        }
        for dark in [false, true] {
            browser.prefer_dark(dark)?;
            assert_eq!(broken(&mut browser)?, json!([]), "{count} leases, dark: {dark}");
            if let Some(dir) = &pictures {
                browser.picture(&dir.join(format!("{count}-{}.png", if dark { "dark" } else { "light" })))?;
            }
        }
    }
    // With a thousand leases, a second changes only what is seen.
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
    lab.detach(&first)?;
    Ok(())
}
