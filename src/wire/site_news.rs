//! What a site says of itself beside its members: what its wall clock shows, and a digest of its
//! list of sites.
//!
//! ```text
//! X-Chronos-Site: wall=1700000000000 sites=9f1b0a2c
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
}

impl SiteNews {
    /// The header line.
    pub fn header(self) -> String {
        format!("{HEADER}wall={} sites={:08x}\r\n", self.wall.0, self.sites)
    }

    /// Returns what the head of an answer says; `None`: it says nothing, or nonsense.
    pub fn parse(head: &[u8]) -> Option<Self> {
        let head = std::str::from_utf8(head).ok()?;
        let told = head.split("\r\n").find_map(|line| line.strip_prefix(HEADER))?;
        let (wall, sites) = told.strip_prefix("wall=")?.split_once(" sites=")?;
        let is_number = wall.bytes().all(|byte| byte.is_ascii_digit());
        let is_digest = sites.len() == 8 && sites.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_number || !is_digest {
            return None;
        }
        let sites = u32::from_str_radix(sites, 16).ok()?;
        Some(Self { wall: WallMs(wall.parse().ok()?), sites })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_read_as_they_were_written() {
        for (wall, sites) in [(0, 0), (1_700_000_000_000, 0x9f1b_0a2c), (u64::MAX, u32::MAX)] {
            let news = SiteNews { wall: WallMs(wall), sites };
            let head = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 0\r\n\r\n", news.header());
            assert_eq!(SiteNews::parse(head.as_bytes()), Some(news));
        }
    }

    #[test]
    fn nonsense_and_silence_are_no_news() {
        for bad in [
            "",
            "wall=1",
            "wall=1 sites=9f1b0a2",
            "wall=1 sites=+f1b0a2c",
            "wall=+1 sites=9f1b0a2c",
            "wall= sites=9f1b0a2c",
            "wall=99999999999999999999 sites=9f1b0a2c",
            "sites=9f1b0a2c wall=1",
        ] {
            let head = format!("HTTP/1.1 200 OK\r\n{HEADER}{bad}\r\n\r\n");
            assert_eq!(SiteNews::parse(head.as_bytes()), None, "{bad}");
        }
        assert_eq!(SiteNews::parse(b"HTTP/1.1 200 OK\r\n\r\n"), None);
        assert_eq!(SiteNews::parse(b"\xff"), None);
    }
}
