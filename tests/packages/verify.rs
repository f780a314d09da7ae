//! A release is verified in its folder, and no damage goes unnoticed.

use std::fs;
use std::path::PathBuf;

use netns_fixtures::{Error, Lan, Need, Netns, sandbox};
use serde_json::json;

use super::{DIST, PACKAGING, Shipped};

/// What a release for one architecture has besides its packages, its image and its plugin. The argument is its folder.
const REST: &str = r#"
    cd "$0"
    cp "$1/docs/changelog.md" .
    tar -C "$1/dist" -czf leasehold-0.1.0-kubernetes.tar.gz kubernetes"#;

/// Writes the checksums again.
const SEAL: &str = "rm -f SHA256SUMS; sha256sum -- * >../sums; mv ../sums SHA256SUMS";

/// Ways to damage a release: a script that runs in its folder, and what is then said about it. `$1` is the folder of the same
/// release with other programs in everything but the package for Debian.
const DAMAGES: [(&str, &str); 9] = [
    ("echo >>changelog.md", "changelog.md: FAILED"),
    (
        "rm leasehold-0.1.0-1.x86_64.rpm",
        "SHA256SUMS and the folder differ about leasehold-0.1.0-1.x86_64.rpm",
    ),
    ("touch more", "SHA256SUMS and the folder differ about more"),
    (
        "rm leasehold-0.1.0-image.tar; SEAL",
        "there is no leasehold-0.1.0-image.tar",
    ),
    (
        "dpkg-deb --raw-extract *.deb ../deb; echo >>../deb/usr/bin/leasehold; dpkg-deb --build -Znone ../deb *.deb; SEAL",
        "/usr/bin/leasehold of the deb for amd64 is not the program that is built here",
    ),
    (
        "cp $1/*.rpm .; SEAL",
        "/usr/libexec/leasehold/dhcp of the rpm for amd64 is not",
    ),
    (
        "cp $1/*-image.tar .; SEAL",
        "/usr/libexec/leasehold/dhcp of the image for amd64 is not",
    ),
    (
        "cp $1/*-plugin-amd64.tar.gz .; SEAL",
        "/usr/libexec/leasehold/dhcp of the plugin for amd64 is not",
    ),
    (
        "echo '{\"specVersion\": \"1.5\"}' >leasehold-0.1.0-plugin.cdx.json; SEAL",
        "leasehold-0.1.0-plugin.cdx.json: ",
    ),
];

/// Makes packages in these formats, the image and the plugin of a release, and returns their folder.
fn made(host: &Netns, shipped: &Shipped, formats: &str) -> Result<PathBuf, Error> {
    let dir = shipped.packages("1", formats)?;
    let image = dir.join("leasehold-0.1.0-image.tar");
    let plugin = shipped.target.join("plugin");
    shipped.make("image/build", &[&image.to_string_lossy(), "amd64"], &[])?;
    shipped.make(
        "docker-plugin/build",
        &[&plugin.to_string_lossy(), "amd64"],
        &[],
    )?;
    let file = dir.join("leasehold-0.1.0-docker-plugin-amd64.tar.gz");
    let (plugin, file) = (plugin.display(), file.display());
    host.sh(&format!("tar -C {plugin} -czf {file} ."))?;
    Ok(dir)
}

#[test]
fn a_release_is_verified_and_no_damage_gets_through() -> Result<(), Error> {
    let tools = [
        Need::Program("lintian"),
        Need::Program("rpmlint"),
        Need::Installed("daemon/dist/verify"),
    ];
    let needs = [&PACKAGING[..], &tools].concat();
    let sandbox = sandbox!(&needs);
    let lan = Lan::new(&sandbox)?;
    let shipped = Shipped::new(&lan.host)?;
    let dir = made(&lan.host, &shipped, "deb rpm")?
        .to_string_lossy()
        .into_owned();
    let sbom = json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "component": { "type": "application", "name": "leasehold", "version": "0.1.0" } },
        "components": [{ "type": "library", "name": "one" }],
    });
    lan.host
        .run_command("sh", &["-ec", REST, &dir, &format!("{DIST}/..")], "")?;
    for part in ["daemon", "plugin"] {
        fs::write(
            format!("{dir}/leasehold-0.1.0-{part}.cdx.json"),
            sbom.to_string(),
        )
        .expect("there is room");
    }
    lan.host
        .run_command("sh", &["-ec", &format!("cd \"$0\"; {SEAL}"), &dir], "")?;
    let said = shipped.make("verify", &[&dir, "amd64"], &[])?;
    assert!(
        said.ends_with("verified: 8 files of leasehold 0.1.0 for amd64\n"),
        "{said}"
    );

    let other = Shipped::new(&lan.host)?;
    let program = other.programs.join("dhcp");
    lan.host.sh(&format!("echo >>'{}'", program.display()))?;
    let other = made(&lan.host, &other, "rpm")?
        .to_string_lossy()
        .into_owned();
    for (damage, named) in DAMAGES {
        let damaged = lan
            .host
            .sandbox()
            .dir("damaged")?
            .join("release")
            .to_string_lossy()
            .into_owned();
        let damage = format!(
            "cp -r \"$2\" \"$0\"; cd \"$0\"; {}",
            damage.replace("SEAL", SEAL)
        );
        lan.host
            .run_command("sh", &["-ec", &damage, &damaged, &other, &dir], "")?;
        let refused = shipped
            .make("verify", &[&damaged, "amd64"], &[])
            .expect_err(&damage)
            .to_string();
        assert!(refused.contains(named), "{damage}: {refused}");
    }
    Ok(())
}
