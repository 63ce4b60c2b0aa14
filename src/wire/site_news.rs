//! What a site says of itself beside its members: what its wall clock shows, a digest of its list
//! of sites, and since when the node that answers had all that it acknowledged, as its process
//! began. A node that has lost its disk, or has none, has that since its start.
//!
//! ```text
//! X-Chronos-Site: wall=1700000000000 sites=9f1b0a2c since=1699990000000
//! ```
//!
//! A header of the answer to `GET /ping?members`, so that a site of another version, which reads
//! the body alone, is not disturbed. That site says nothing, and nothing is concluded from it.

use crate::base::time::WallMs;

const HEADER: &str = "X-Chronos-Site: ";

/// What a site says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SiteNews {
    /// The wall clock of the node that answers, as it answers.
    pub wall: WallMs,
    /// A digest of the names of all sites that the node knows, its own included.
    pub sites: u32,
    /// Since when the node that answers had all that it acknowledged as its process began, by its
    /// wall clock.
    pub since: WallMs,
}

impl SiteNews {
    /// The header line.
    pub fn header(self) -> String {
        let Self { wall, sites, since } = self;
        format!("{HEADER}wall={} sites={sites:08x} since={}\r\n", wall.0, since.0)
    }

    /// Returns what the head of an answer says; `None`: it says nothing, or nonsense.
    pub fn parse(head: &[u8]) -> Option<Self> {
        let head = std::str::from_utf8(head).ok()?;
        let told = head.split("\r\n").find_map(|line| line.strip_prefix(HEADER))?;
        let (wall, rest) = told.strip_prefix("wall=")?.split_once(" sites=")?;
        let (sites, since) = rest.split_once(" since=")?;
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is_digest = sites.len() == 8 && sites.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_number(wall) || !is_number(since) || !is_digest {
            return None;
        }
        let sites = u32::from_str_radix(sites, 16).ok()?;
        let (wall, since) = (WallMs(wall.parse().ok()?), WallMs(since.parse().ok()?));
        Some(Self { wall, sites, since })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_read_as_they_were_written() {
        for (wall, sites) in [(0, 0), (1_700_000_000_000, 0x9f1b_0a2c), (u64::MAX, u32::MAX)] {
            let news = SiteNews { wall: WallMs(wall), sites, since: WallMs(wall / 2) };
            let head = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 0\r\n\r\n", news.header());
            assert_eq!(SiteNews::parse(head.as_bytes()), Some(news));
        }
    }

    #[test]
    fn nonsense_and_silence_are_no_news() {
        for bad in [
            "",
            "wall=1",
            "wall=1 sites=9f1b0a2c",
            "wall=1 sites=9f1b0a2 since=1",
            "wall=1 sites=+f1b0a2c since=1",
            "wall=+1 sites=9f1b0a2c since=1",
            "wall= sites=9f1b0a2c since=1",
            "wall=99999999999999999999 sites=9f1b0a2c since=1",
            "wall=1 sites=9f1b0a2c since=",
            "wall=1 sites=9f1b0a2c since=-1",
            "sites=9f1b0a2c wall=1 since=1",
        ] {
            let head = format!("HTTP/1.1 200 OK\r\n{HEADER}{bad}\r\n\r\n");
            assert_eq!(SiteNews::parse(head.as_bytes()), None, "{bad}");
        }
        assert_eq!(SiteNews::parse(b"HTTP/1.1 200 OK\r\n\r\n"), None);
        assert_eq!(SiteNews::parse(b"\xff"), None);
    }
}
