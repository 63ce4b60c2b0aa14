//! A browser without a window. One browser runs at a time, because two take all of a small machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kit::children::{self, Guard, Tied};
use kit::ports::free_port;
use kit::runner::cannot_run;
use kit::until::{PATIENCE, until};
use serde_json::{Value, json};
use tempfile::TempDir;
use thirtyfour::{ChromiumLikeCapabilities, DesiredCapabilities, LoggingPrefsLogLevel, WebDriver};
use tokio::runtime::Runtime;

const DRIVER: &str = "/usr/bin/chromedriver";
/// Pause between two looks at a page.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// So that nothing is asked of the internet, and root may run it.
const ARGUMENTS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--lang=en",
];

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A browser with one tab. Its processes end with the value.
pub struct Browser {
    runtime: Runtime,
    driver: Option<WebDriver>,
    process: Child,
    /// What ends the browser if this process is killed.
    _guard: Guard,
    _folder: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take() {
            // An error means that the browser has ended already.
            let _ = self.runtime.block_on(driver.quit());
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Browser {
    /// Starts a browser with this address open, at 1280 by 860.
    pub fn open(url: &str) -> Browser {
        if !Path::new(DRIVER).exists() {
            cannot_run("chromium or chromium-driver is missing (apt-get install them)");
        }
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().expect("a folder");
        // The lock of the profile is a link that names the process.
        let script = "lock=$(readlink \"$1/SingletonLock\") && kill -KILL \"${lock##*-}\"; \
                      rm -rf \"$1\"";
        let guard = Guard::with(script, &[folder.path().as_os_str()]);
        let port = free_port(&[IpAddr::V4(Ipv4Addr::LOCALHOST)]);
        let process = children::command(DRIVER)
            .args([&format!("--port={port}"), "--log-level=OFF"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn_tied()
            .expect("the driver runs");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        until("the driver", PATIENCE, || TcpStream::connect(address).ok());
        let mut wanted = DesiredCapabilities::chrome();
        for argument in ARGUMENTS {
            wanted.add_arg(argument).expect("a list");
        }
        let profile = format!("--user-data-dir={}", folder.path().display());
        wanted.add_arg(&profile).expect("a list");
        wanted.set_browser_log_level(LoggingPrefsLogLevel::All).expect("a level");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let driver = runtime.block_on(WebDriver::new(format!("http://{address}"), wanted));
        let driver = Some(driver.expect("a session"));
        let browser =
            Browser { runtime, driver, process, _guard: guard, _folder: folder, _turn: turn };
        browser.size(1_280);
        browser.go(url);
        browser
    }

    fn driver(&self) -> &WebDriver {
        self.driver.as_ref().expect("there until the drop")
    }

    /// Opens an address.
    pub fn go(&self, url: &str) {
        self.runtime.block_on(self.driver().goto(url)).expect("it opens");
    }

    /// Opens a page of the console, and waits until the page shows something.
    pub fn page(&self, hash: &str, title: &str) {
        self.script("location.hash = arguments[0]", &[json!(hash)]);
        let shown = "return document.querySelector('main h1')?.textContent === arguments[0] && \
                     !document.querySelector('main [aria-busy]')";
        self.wait_with(&format!("the page {hash}"), shown, &[json!(title)]);
    }

    /// Runs a script in the page and returns its value.
    pub fn script(&self, script: &str, arguments: &[Value]) -> Value {
        let run = self.driver().execute(script, arguments.to_vec());
        let answer = self.runtime.block_on(run).unwrap_or_else(|error| panic!("{script}: {error}"));
        answer.json().clone()
    }

    /// Waits until a script returns something true, and returns that.
    pub fn wait_with(&self, what: &str, script: &str, arguments: &[Value]) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.script(script, arguments);
            if !matches!(seen, Value::Null | Value::Bool(false)) && seen != "" {
                return seen;
            }
            if Instant::now() >= deadline {
                let shown = self.text("body");
                panic!("waited in vain for {what}; {:?}\n{shown}", self.errors());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Waits until a script returns something true, and returns that.
    pub fn wait(&self, what: &str, script: &str) -> Value {
        self.wait_with(what, script, &[])
    }

    /// Waits until the page shows this text.
    pub fn wait_for_text(&self, text: &str) {
        let shown = "return document.body.innerText.includes(arguments[0])";
        self.wait_with(text, shown, &[json!(text)]);
    }

    /// The text of an element as it is shown.
    pub fn text(&self, css: &str) -> String {
        let text =
            self.script("return document.querySelector(arguments[0])?.innerText", &[json!(css)]);
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Presses the button or follows the link with this text, as soon as there is one.
    pub fn press(&self, text: &str) {
        let found = "const open = [...document.querySelectorAll('dialog')].at(-1) ?? document;
            const found = [...open.querySelectorAll('button, a')]
                .find((one) => one.innerText === arguments[0] && !one.disabled);
            if (!found) return false;
            found.scrollIntoView({ block: 'center' });
            found.focus();
            found.click();
            return true";
        self.wait_with(&format!("the button {text}"), found, &[json!(text)]);
    }

    /// Types into what has the focus. Keys of WebDriver are characters of their own.
    pub fn keys(&self, keys: &str) {
        let typed = async {
            let focused = self.driver().active_element().await?;
            focused.send_keys(keys).await
        };
        self.runtime.block_on(typed).expect("typed");
    }

    /// Types into a field.
    pub fn fill(&self, css: &str, text: &str) {
        let focus = "const field = document.querySelector(arguments[0]);
            if (!field) return false;
            field.focus();
            return document.activeElement === field";
        self.wait_with(css, focus, &[json!(css)]);
        self.keys(text);
    }

    fn order(&self, command: &str, parameters: Value) -> Value {
        let cdp = self.driver().cdp();
        let answer = self.runtime.block_on(cdp.send_raw(command, parameters));
        answer.unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// Makes the page as wide as this.
    pub fn size(&self, width: u32) {
        let height = if width > 600 { 860 } else { 900 };
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1,
            "mobile": false });
        self.order("Emulation.setDeviceMetricsOverride", size);
    }

    /// Prefers `light` or `dark`.
    pub fn scheme(&self, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.order("Emulation.setEmulatedMedia", json!({ "features": [feature] }));
    }

    /// Writes a picture of the page.
    pub fn picture(&self, name: &str) {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("console");
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join(format!("{name}.png"));
        self.runtime.block_on(self.driver().screenshot(&path)).expect("a picture");
    }

    /// What the browser has complained about since the last call.
    pub fn errors(&self) -> Vec<String> {
        let log = self.runtime.block_on(self.driver().browser_log()).expect("a log");
        let bad = log.into_iter().filter(|entry| entry.level == "SEVERE");
        bad.map(|entry| entry.message).collect()
    }
}
