//! `leasehold capture` beside a daemon without leases: how it ends, and what it says when it cannot begin.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::home::*;

fn capture(home: &Home, file: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(LEASEHOLD);
    command
        .arg("capture")
        .args(more)
        .arg("--write")
        .arg(file)
        .env("LEASEHOLD_SOCKET", home.socket());
    command.output().unwrap()
}

#[test]
fn a_capture_ends_with_its_time_and_its_file_is_whole() {
    let Some(home) = Home::new() else { return };
    let _daemon = home.start();
    let file = home.dir.path().join("a.pcapng");
    let output = capture(&home, &file, &["--all", "--for", "1s"]);
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(0), "0 frames\n")
    );
    let bytes = fs::read(&file).unwrap();
    let lengths = [4, bytes.len() - 4]
        .map(|at| u32::from_le_bytes(*bytes[at..].first_chunk().unwrap()) as usize);
    // One block, the header.
    assert_eq!(
        (&bytes[..4], lengths),
        (&[0x0a, 0x0d, 0x0d, 0x0a][..], [bytes.len(); 2]),
    );
    let output = capture(&home, &file, &["lan/c1/eth0", "--size", "0"]);
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(0), "0 frames\n")
    );
}

#[test]
fn a_capture_that_cannot_begin_says_why() {
    let Some(home) = Home::new() else { return };
    let file = home.dir.path().join("a.pcapng");
    let output = capture(&home, &file, &["--all"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("no leasehold daemon at") && !file.exists(),
        "{output:?}"
    );
    let _daemon = home.start();
    let output = capture(&home, &home.dir.path().join("missing/a.pcapng"), &["--all"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("missing/a.pcapng: No such file or directory"),
        "{output:?}"
    );
    for wrong in [
        &[][..],
        &["lan/c1/eth0", "--all"],
        &["--all", "--for", "soon"],
    ] {
        assert_eq!(
            capture(&home, &file, wrong).status.code(),
            Some(2),
            "{wrong:?}"
        );
    }
}
