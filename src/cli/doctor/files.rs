//! What the configuration names: its own files, certificates, the data directory.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use super::check::Check;
use crate::cli::runtime::wall_ms;
use crate::control::config::files::ConfigFiles;
use crate::control::config::regular_file;
use crate::control::config::settings::Config;
use crate::ring::measure_sync;
use crate::tls::material::FILE_BYTES_MAX;
use crate::tls::validity::ends_s;

/// Durable writes that are timed.
const WRITES: u32 = 16;
/// Longest time for them.
const WRITES_TIME: Duration = Duration::from_secs(10);
/// A median of durable writes that is worth a word: above it each create waits for the disk.
const SYNC_WANTED: Duration = Duration::from_millis(20);
/// Days before the end of a certificate at which there is a word.
const DAYS_LEFT_MIN: i64 = 14;

/// Reads the configuration. It is missing where it cannot be used.
pub(super) fn configuration(files: &mut ConfigFiles) -> (Vec<Check>, Option<Config>) {
    let what = "configuration";
    let loaded = match files.load() {
        Ok(loaded) => loaded,
        Err(error) => {
            let told = error.to_string();
            let of_line = |line: &str| Check::fail(what, line, "repair it: chronos config check");
            return (told.lines().map(of_line).collect(), None);
        }
    };
    let mut checks = vec![Check::ok(what, format!("fine ({})", files.names()))];
    let warning = |text: &String| Check::warn(what, text, "see docs/security.md");
    checks.extend(loaded.warnings.iter().map(warning));
    (checks, Some(loaded.config))
}

/// Looks at how long the own certificates and the authorities still hold.
pub(super) fn certificates(config: &Config) -> Vec<Check> {
    let now_s = i64::try_from(wall_ms() / 1_000).unwrap_or(i64::MAX);
    let named = [
        ("[tls] cert", &config.tls.cert),
        ("[tls] client_ca", &config.tls.client_ca),
        ("[cluster] tls_cert", &config.peer_tls.cert),
        ("[cluster] tls_ca", &config.peer_tls.ca),
        ("[callbacks] client_cert", &config.callback_tls.client_cert),
        ("[callbacks] ca", &config.callback_tls.ca),
    ];
    let given = named.into_iter().filter(|(_, file)| !file.is_empty());
    given.map(|(key, file)| certificate(key, Path::new(file), now_s)).collect()
}

fn certificate(key: &str, file: &Path, now_s: i64) -> Check {
    let what = format!("{key} {}", file.display());
    let remedy = "make a new one: chronos cluster certs --help, or ask its authority; a running \
                  node takes it by itself";
    let text = match regular_file::read(file, FILE_BYTES_MAX) {
        Ok(text) => text,
        Err(error) => return Check::fail(what, format!("cannot be read: {error}"), "name a file"),
    };
    // Of a chain the first that ends counts; of authorities the last, for one is enough.
    let ends = ends_s(&text);
    let end = if key.ends_with("ca") { ends.iter().max() } else { ends.iter().min() };
    let Some(end) = end else {
        return Check::fail(what, "has no certificate that can be read", "name one in PEM");
    };
    let days = (end - now_s).div_euclid(86_400);
    match days {
        ..0 => Check::fail(what, format!("expired {} days ago", -days), remedy),
        0..DAYS_LEFT_MIN => Check::warn(what, format!("expires in {days} days"), remedy),
        _ => Check::ok(what, format!("expires in {days} days")),
    }
}

/// Times durable writes in the data directory.
pub(super) fn disk(config: &Config) -> Option<Check> {
    let directory = config.node.journal.directory()?.clone();
    let what = format!("data directory {}", directory.display());
    let Some(place) = existing(&directory) else {
        return Some(Check::fail(what, "does not exist", "make it, or set [journal] data_dir"));
    };
    let (tell, hear) = channel();
    std::thread::spawn(move || {
        // Nobody listens any more if it took too long.
        let _ = tell.send(measure_sync(&place, WRITES));
    });
    Some(match hear.recv_timeout(WRITES_TIME) {
        Err(_) => Check::fail(
            what,
            format!("{WRITES} durable writes take more than {} s", WRITES_TIME.as_secs()),
            "look at the disk (dmesg, iostat), or take another",
        ),
        Ok(Err(error)) => Check::fail(
            what,
            format!("cannot be written durably: {error}"),
            "give it to the user of the node, with room, on a disk of this machine",
        ),
        Ok(Ok(mut times)) => judged(what, &mut times),
    })
}

fn judged(what: String, times: &mut [Duration]) -> Check {
    times.sort_unstable();
    let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
    let (median, slowest) = (at(50), times.last().copied().unwrap_or_default());
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let told = format!("a durable write takes {:.2} ms, at most {:.2} ms", ms(median), ms(slowest));
    if median > SYNC_WANTED {
        let remedy = "each create waits so long: take a disk with a cache that survives a loss of \
                      power, or journal.mode = \"interval\"";
        return Check::warn(what, told, remedy);
    }
    Check::ok(what, told)
}

/// The directory, or, while a node has not made it, the one that it will be made in.
fn existing(directory: &Path) -> Option<PathBuf> {
    directory.ancestors().find(|path| path.is_dir()).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::check::Verdict;

    #[test]
    fn certificates_are_told_before_they_end() {
        let made = rcgen::generate_simple_self_signed(vec!["a".into()]).expect("a certificate");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), made.cert.pem()).expect("written");
        let end = ends_s(made.cert.pem().as_bytes())[0];
        let verdict = |now_s| certificate("[tls] cert", file.path(), now_s).verdict;
        assert_eq!(verdict(end - 86_400 * 30), Verdict::Ok);
        assert_eq!(verdict(end - 86_400), Verdict::Warn);
        assert_eq!(verdict(end + 86_400), Verdict::Fail);
        std::fs::write(file.path(), "nonsense").expect("written");
        assert_eq!(verdict(0), Verdict::Fail);
    }

    #[test]
    fn slow_disks_are_told() {
        let judge = |ms| judged("d".into(), &mut [Duration::from_millis(ms); 3]).verdict;
        assert_eq!((judge(1), judge(50)), (Verdict::Ok, Verdict::Warn));
    }
}
