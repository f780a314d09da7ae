//! Draws the pictures of README from a real run: containers on a LAN with a real server, the page in a browser, and a terminal with
//! what `list` and `show` print. `cargo pictures DIR` writes `page.png` and `terminal.png` there, by default to `daemon/docs`.
//! It needs root, dnsmasq, chromium, and util-linux's script.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use netns_fixtures::server::{Dnsmasq, DnsmasqConfig};
use netns_fixtures::{Browser, Lab, Process, Sandbox, binary, build};

/// What runs on the host.
const CONTAINERS: [&str; 9] = [
    "broker", "camera-1", "camera-2", "db", "grafana", "nvr", "plc-gate", "web-0", "web-1",
];

/// The columns of the terminal, and the commands in it.
const COLUMNS: u32 = 100;
const COMMANDS: [&str; 2] = ["list", "show camera-2"];

/// The page that shows a terminal.
const TERMINAL: &str = "data:text/html;charset=utf-8,<body style='margin:0;padding:16px 20px;background:%23181b20;color:%23d8dee6;\
    width:fit-content'><pre style='margin:0;font:15px/1.35 \"DejaVu Sans Mono\",monospace'>";

fn main() -> ExitCode {
    let dir = env::args_os().nth(1).map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../daemon/docs"),
        PathBuf::from,
    );
    match draw(&dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pictures: {error}");
            ExitCode::FAILURE
        }
    }
}

fn draw(dir: &Path) -> Result<(), Box<dyn Error>> {
    build()?;
    let sandbox = Sandbox::enter()?;
    let mut lab = Lab::without_daemon(&sandbox)?;
    lab.home().with_read_socket()?;
    lab.start_daemon()?;
    let server = DnsmasqConfig {
        lease_time: Duration::from_secs(2 * 3600),
        ..DnsmasqConfig::default()
    };
    let _server = Dnsmasq::start(&lab.lan, server)?;
    // A container ends when its value is dropped.
    let _containers = CONTAINERS
        .iter()
        .map(|id| lab.attach(id))
        .collect::<Result<Vec<_>, _>>()?;
    lab.detach(&lab.attach("backup")?)?;
    let _exporter = exporter(&lab)?;
    let mut browser = Browser::start(&lab.lan.host)?;
    page(&mut browser, &dir.join("page.png"))?;
    terminal(&lab, &mut browser, &dir.join("terminal.png"))?;
    lab.terminate()?;
    Ok(())
}

fn exporter(lab: &Lab) -> Result<Process, Box<dyn Error>> {
    let mut command = Command::new(binary("leasehold")?);
    command.args(["exporter", "--socket"]);
    command.arg(lab.home().read_socket());
    let mut exporter = Process::start(&lab.lan.host, "leasehold exporter", command)?;
    exporter.wait_for_line("listening on")?;
    Ok(exporter)
}

fn page(browser: &mut Browser, file: &Path) -> Result<(), Box<dyn Error>> {
    browser.resize(1280, 860)?;
    browser.open("http://127.0.0.1:9467/")?;
    let rows = CONTAINERS.len();
    browser.wait_for(&format!(
        "document.querySelectorAll('#rows tr').length === {rows} \
         && document.getElementById('servers').children.length === 1 \
         && document.getElementById('events').textContent.includes('released')"
    ))?;
    Ok(browser.picture(file)?)
}

/// Runs the commands as in a terminal, and draws what they print.
fn terminal(lab: &Lab, browser: &mut Browser, file: &Path) -> Result<(), Box<dyn Error>> {
    let (mut html, mut lines) = (TERMINAL.to_owned(), 0);
    for command in COMMANDS {
        let line = format!(
            "stty cols {COLUMNS}; {} {command}",
            binary("leasehold")?.display()
        );
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        script.env("LEASEHOLD_SOCKET", lab.home().socket());
        let output = lab.lan.host.output(script, b"")?;
        let said = String::from_utf8_lossy(&output.stdout).replace('\r', "");
        if !output.status.success() {
            return Err(format!("leasehold {command}: {said}").into());
        }
        let said = format!("\x1b[1m# leasehold {command}\x1b[0m\n{said}\n");
        lines += said.lines().count();
        html += &in_html(&said);
    }
    browser.open(&html)?;
    browser.wait_for(&format!(
        "document.querySelector('pre')?.textContent.split('\\n').length > {}",
        lines - 1
    ))?;
    let of_body = |browser: &mut Browser, side: &str| -> Result<u32, Box<dyn Error>> {
        let size = browser.evaluate(&format!(
            "Math.ceil(document.body.getBoundingClientRect().{side})"
        ))?;
        Ok(u32::try_from(size.as_u64().unwrap_or_default())?)
    };
    let (width, height) = (of_body(browser, "width")?, of_body(browser, "height")?);
    browser.resize(width, height)?;
    Ok(browser.picture(file)?)
}

/// Returns a terminal's output as HTML, in the form that a URL takes.
fn in_html(text: &str) -> String {
    let colour = |code: &str| match code {
        "1" => "white",
        "31" => "%23ff7b72",
        "32" => "%237ee787",
        "33" => "%23e3b341",
        _ => "inherit",
    };
    let mut parts = text.split("\x1b[");
    let plain = |text: &str| {
        text.replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('%', "%25")
            .replace('#', "%23")
            .replace('\n', "%0A")
    };
    let first = plain(parts.next().unwrap_or_default());
    let coloured = parts.map(|part| {
        let (code, rest) = part.split_once('m').unwrap_or(("0", part));
        format!(
            "<span style='color:{}'>{}</span>",
            colour(code),
            plain(rest)
        )
    });
    first + &coloured.collect::<String>()
}
