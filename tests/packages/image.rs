//! The image, and what containerd makes of it.

use std::fs;
use std::path::PathBuf;

use netns_fixtures::{Containerd, Engine, Error, Incumbent, Lan, Need, assert_says, sandbox};

use super::Shipped;

/// How large a release may be, unpacked, with the programs as tests build them.
const LARGEST: u64 = 20 << 20;

#[test]
fn two_builds_are_one_image_of_nothing_but_two_programs() -> Result<(), Error> {
    let needs = [Containerd::NEEDS, &[Need::File(Incumbent::PLUGIN)]].concat();
    let lan = Lan::new(&sandbox!(&needs))?;
    let shipped = Shipped::new(&lan.host)?;
    let build = |name: &str| -> Result<(PathBuf, String), Error> {
        let file = shipped.target.join(name);
        // The same programs stand for both architectures.
        let said = shipped.make(
            "image/build",
            &[&file.to_string_lossy(), "amd64", "arm64"],
            &[],
        )?;
        println!("{said}");
        Ok((file, said))
    };
    let ((file, said), (again, said_again)) = (build("one.tar")?, build("two.tar")?);
    assert_eq!(said, said_again);
    assert!(
        fs::read(&file).expect("it was made") == fs::read(again).expect("it was made"),
        "byte by byte"
    );
    let sizes = said.lines().filter_map(|line| {
        line.split_once(": ")?
            .1
            .split_once(" bytes")?
            .0
            .parse::<u64>()
            .ok()
    });
    assert!(
        sizes.clone().count() == 2 && sizes.clone().all(|size| size < LARGEST),
        "{said}"
    );

    let containerd = Containerd::start(
        &lan.host,
        &Lan::cni_config("/run/cni/dhcp.sock".as_ref()),
        Incumbent::PLUGIN.as_ref(),
    )?;
    let image = containerd.import(&file)?;
    assert_eq!(
        containerd
            .ctr(&[
                "run",
                "--rm",
                "--cgroup",
                "",
                &image,
                "version",
                "/usr/bin/leasehold",
                "--version"
            ])?
            .trim(),
        "leasehold 0.1.0"
    );
    let plugin = [
        "run",
        "--rm",
        "--cgroup",
        "",
        &image,
        "plugin",
        "/usr/libexec/leasehold/dhcp",
        "--version",
    ];
    let seen = containerd.ctr(&plugin)?;
    assert_eq!(seen.trim(), "leasehold's CNI plugin, version 0.1.0");
    // It has no daemon to ask, and says so: the entry point is the program.
    let refused = containerd.ctr(&[
        "run",
        "--rm",
        "--cgroup",
        "",
        &image,
        "list",
        "/usr/bin/leasehold",
        "list",
    ]);
    let refused = refused.expect_err("there is no daemon").to_string();
    assert_says(&refused, "no leasehold daemon at /run/cni/dhcp.sock");

    let dir = shipped.target.join("root");
    shipped.make("image/root", &[&dir.to_string_lossy(), "amd64"], &[])?;
    let found = lan.host.run_command(
        "find",
        &[&dir.to_string_lossy(), "-type", "f", "-printf", "%P\n"],
        "",
    )?;
    let mut files: Vec<_> = found.lines().collect();
    files.sort_unstable();
    let expected = [
        "etc/passwd",
        "usr/bin/leasehold",
        "usr/libexec/leasehold/dhcp",
        "usr/share/licenses/leasehold/LICENSE",
        "usr/share/licenses/leasehold/licences",
    ];
    assert_eq!(files, expected);
    Ok(())
}
