//! `leasehold capture`: the DHCP and ARP frames of one attachment, or of all, as the daemon receives and sends them, from now on.

mod pcapng;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::time::Instant;

use anyhow::{Context, bail};
use data_encoding::BASE64;
use leasehold_api::control::{CAPTURE, Frames, to_url};

use super::args::CaptureArgs;
use super::client;
use pcapng::Pcapng;

/// How long the daemon may wait for a frame, in seconds. Less than the client's own limit.
const WAIT: u64 = 20;

/// Returns the attachment of the lease that has this name.
fn meant(args: &CaptureArgs, name: &str) -> anyhow::Result<String> {
    let mut attachments = client::called(&args.socket, name)?;
    // A lease that is being given back may have the same one.
    attachments.dedup();
    let is_whole = name.matches('/').count() >= 2;
    match &attachments[..] {
        [] if is_whole => Ok(name.to_owned()),
        [] => bail!(
            "no lease is called {name:?}: `leasehold list` shows all. To begin before there is one, name its whole attachment, such as \
             lan/CONTAINER/eth0, or --all"
        ),
        [one] => Ok(one.clone()),
        several => bail!("several leases are called {name:?}: {}", several.join(", ")),
    }
}

/// Captures until time is up, the file has reached its size limit, or somebody stops it. The file is complete at any moment.
/// Returns what to tell a person at the end.
pub(crate) fn capture(args: &CaptureArgs) -> anyhow::Result<String> {
    let unwritten = || format!("cannot write {}", args.write.display());
    let attachment = args
        .name
        .as_ref()
        .map(|name| meant(args, name))
        .transpose()?;
    let whose = attachment
        .map(|attachment| format!("&attachment={}", to_url(&attachment)))
        .unwrap_or_default();
    let ask = |more: &str| -> anyhow::Result<Frames> {
        Ok(client::read(&client::get(
            &args.socket,
            &format!("{CAPTURE}?{more}{whose}"),
        )?)?)
    };
    let mut after = ask("wait=0")?.next_after;
    let out: Box<dyn Write> = match args.write.as_os_str() == "-" {
        true => Box::new(io::stdout().lock()),
        false => Box::new(BufWriter::new(
            File::create(&args.write).with_context(unwritten)?,
        )),
    };
    let mut file = Pcapng::new(out).with_context(unwritten)?;
    let until = args.limit.map(|limit| Instant::now() + limit);
    let mut frames = 0;
    let mut missed = 0;
    let mut unsaid = 0;
    while file.written() < args.size.saturating_mul(1 << 20) {
        let left = until.map(|until| {
            until
                .saturating_duration_since(Instant::now())
                .as_secs_f64()
                .ceil() as u64
        });
        if left == Some(0) {
            break;
        }
        let read = ask(&format!(
            "after={after}&wait={}",
            left.unwrap_or(WAIT).min(WAIT)
        ))?;
        (after, missed, unsaid) = (read.next_after, missed + read.missed, unsaid + read.missed);
        for frame in &read.frames {
            let bytes = BASE64.decode(frame.bytes.as_bytes());
            let bytes = bytes.context(
                "the daemon's answer cannot be read: do daemon and command have the same version?",
            )?;
            file.frame(frame, &bytes, std::mem::take(&mut unsaid))
                .with_context(unwritten)?;
            frames += 1;
        }
        file.flush().with_context(unwritten)?;
    }
    let lost = (missed > 0).then(|| format!(", {missed} came too fast"));
    let lost = lost.unwrap_or_default();
    let plural = if frames == 1 { "" } else { "s" };
    Ok(format!("{frames} frame{plural}{lost}\n"))
}
