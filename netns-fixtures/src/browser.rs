//! Chromium without a window, in a namespace, driven through its own protocol (CDP) over two pipes.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::error::{Doing, Error};
use crate::netns::Netns;
use crate::process::DEADLINE;
use crate::wait::{readable, until_found};

/// The pipes are descriptors 3 and 4, where `--remote-debugging-pipe` looks for them.
const START: &str = "TMPDIR=\"$0\" exec chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars \
    --no-first-run --disable-background-networking --remote-debugging-pipe --user-data-dir=\"$0\" about:blank \
    3<&0 4>&1 </dev/null >/dev/null 2>/dev/null";

/// The window, in pixels.
const SIZE: (u32, u32) = (1400, 900);

/// A browser with one page open.
#[derive(Debug)]
pub struct Browser {
    process: Child,
    commands: Option<ChildStdin>,
    answers: ChildStdout,
    /// What was read but not yet taken.
    unread: Vec<u8>,
    page: Option<String>,
    sent: u64,
}

impl Browser {
    /// Starts it in a namespace.
    pub fn start(netns: &Netns) -> Result<Self, Error> {
        let mut command = Command::new("sh");
        command
            .args(["-c", START])
            .arg(netns.sandbox().dir("browser")?);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = netns.spawn(command)?;
        let commands = process.stdin.take();
        let answers = process.stdout.take().expect("it is a pipe");
        let mut browser = Self {
            process,
            commands,
            answers,
            unread: Vec::new(),
            page: None,
            sent: 0,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        browser.page = browser.call("Target.attachToTarget", attach)?["sessionId"]
            .as_str()
            .map(str::to_owned);
        browser.resize(SIZE.0, SIZE.1)?;
        Ok(browser)
    }

    /// Gives its window a size, in pixels.
    pub fn resize(&mut self, width: u32, height: u32) -> Result<(), Error> {
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics)
            .map(drop)
    }

    /// Opens a page.
    pub fn open(&mut self, url: &str) -> Result<(), Error> {
        self.call("Page.navigate", json!({"url": url})).map(drop)
    }

    /// Makes the page believe that its reader prefers the dark theme, or the light one.
    pub fn prefer_dark(&mut self, dark: bool) -> Result<(), Error> {
        let value = if dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.call("Emulation.setEmulatedMedia", features).map(drop)
    }

    /// Evaluates an expression of JavaScript, waiting for it if it is a promise.
    pub fn evaluate(&mut self, expression: &str) -> Result<Value, Error> {
        let asked = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", asked)?;
        match answer.get("exceptionDetails") {
            Some(thrown) => Err(Error::unreadable(
                "what a page evaluates",
                thrown.to_string(),
            )),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// Waits until an expression is true.
    pub fn wait_for(&mut self, expression: &str) -> Result<(), Error> {
        until_found(expression, DEADLINE, || {
            Ok((self.evaluate(expression)? == json!(true)).then_some(()))
        })
    }

    /// Types a text where the focus is, key by key.
    pub fn type_keys(&mut self, text: &str) -> Result<(), Error> {
        for key in text.chars().map(String::from) {
            self.call(
                "Input.dispatchKeyEvent",
                json!({"type": "keyDown", "key": key, "text": key}),
            )?;
            self.call(
                "Input.dispatchKeyEvent",
                json!({"type": "keyUp", "key": key}),
            )?;
        }
        Ok(())
    }

    /// Presses a key that types nothing, or Enter.
    pub fn press(&mut self, key: &str) -> Result<(), Error> {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Tab" => (9, ""),
            _ => (0, ""),
        };
        let down = json!({"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
        self.call("Input.dispatchKeyEvent", down)?;
        self.call(
            "Input.dispatchKeyEvent",
            json!({"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code}),
        )
        .map(drop)
    }

    /// Writes what the window shows to a PNG file.
    pub fn picture(&mut self, file: &Path) -> Result<(), Error> {
        let answer = self.call("Page.captureScreenshot", json!({}))?;
        let bytes = BASE64.decode(answer["data"].as_str().unwrap_or_default().as_bytes());
        let bytes = bytes.map_err(|error| Error::unreadable("a picture", error.to_string()))?;
        fs::write(file, bytes).doing(|| format!("write {}", file.display()))
    }

    fn call(&mut self, method: &str, params: Value) -> Result<Value, Error> {
        self.sent += 1;
        let mut command = json!({"id": self.sent, "method": method, "params": params});
        if let Some(page) = &self.page {
            command["sessionId"] = json!(page);
        }
        let text = format!("{command}\0");
        let pipe = self.commands.as_mut().expect("it is there until the end");
        pipe.write_all(text.as_bytes())
            .doing(|| format!("tell a browser {method}"))?;
        loop {
            let answer = self.next(method)?;
            if answer["id"] == json!(self.sent) {
                return match answer.get("error") {
                    Some(error) => Err(Error::unreadable(
                        "an answer of a browser",
                        error.to_string(),
                    )),
                    None => Ok(answer["result"].clone()),
                };
            }
        }
    }

    /// Returns the next message, each of which ends with a zero.
    fn next(&mut self, awaited: &str) -> Result<Value, Error> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == 0) {
                let message: Vec<u8> = self.unread.drain(..=end).take(end).collect();
                return serde_json::from_slice(&message)
                    .map_err(|error| Error::unreadable("a browser's message", error.to_string()));
            }
            let mut chunk = vec![0; 1 << 16];
            let more = match readable(self.answers.as_fd(), deadline)? {
                true => self
                    .answers
                    .read(&mut chunk)
                    .doing(|| "hear a browser".to_owned())?,
                false => 0,
            };
            if more == 0 {
                return Err(Error::timed_out(awaited, DEADLINE, String::new()));
            }
            self.unread.extend(&chunk[..more]);
        }
    }
}

impl Drop for Browser {
    /// Closes its pipes, which ends it with all its processes.
    fn drop(&mut self) {
        self.commands = None;
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
