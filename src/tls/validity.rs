//! From when until when a certificate holds: read from its DER, as far as that (RFC 5280, section
//! 4.1).

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

const BOOLEAN: u8 = 0x01;
const OCTETS: u8 = 0x04;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The time of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Validity {
    not_before: Timestamp,
    not_after: Timestamp,
}

impl Validity {
    /// The time of a certificate in DER; `None`: it cannot be read.
    pub(super) fn of(certificate: &[u8]) -> Option<Self> {
        let mut outer = certificate;
        let mut whole = expect(&mut outer, SEQUENCE)?;
        let mut signed = expect(&mut whole, SEQUENCE)?;
        if signed.first() == Some(&VERSION) {
            element(&mut signed)?;
        }
        // Serial number, algorithm of the signature, issuer.
        for _ in 0..3 {
            element(&mut signed)?;
        }
        let mut times = expect(&mut signed, SEQUENCE)?;
        Some(Self { not_before: time(&mut times)?, not_after: time(&mut times)? })
    }

    /// When it ends, in seconds since 1970; 0 for what ended before.
    pub(super) fn ends_s(&self) -> u64 {
        u64::try_from(self.not_after.as_second()).unwrap_or(0)
    }

    /// What is wrong with the certificate at this time, in seconds since 1970.
    pub(super) fn complaint(&self, now_s: i64) -> Option<String> {
        if now_s > self.not_after.as_second() {
            let end = self.not_after;
            Some(format!("the certificate has expired ({end}): who connects refuses it"))
        } else if now_s < self.not_before.as_second() {
            let begins = self.not_before;
            Some(format!("the certificate holds from {begins} on: it is refused until then"))
        } else {
            None
        }
    }
}

/// Whether a certificate is that of an authority: its extension `basicConstraints` says CA:TRUE
/// (RFC 5280, section 4.2.1.9).
pub(super) fn is_of_authority(certificate: &[u8]) -> bool {
    const NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x1d, 0x13];
    let after = certificate.windows(NAME.len()).position(|bytes| bytes == NAME);
    let mut rest = after.and_then(|at| certificate.get(at + NAME.len()..)).unwrap_or_default();
    let value = match element(&mut rest) {
        Some((BOOLEAN, _)) => expect(&mut rest, OCTETS),
        Some((OCTETS, value)) => Some(value),
        _ => None,
    };
    let mut value = value.unwrap_or_default();
    let mut constraints = expect(&mut value, SEQUENCE).unwrap_or_default();
    expect(&mut constraints, BOOLEAN).is_some_and(|is_ca| is_ca != [0])
}

/// When each certificate of a text in PEM ends, in seconds since 1970. What cannot be read is left
/// out.
pub(crate) fn ends_s(text: &[u8]) -> Vec<i64> {
    let certificates = CertificateDer::pem_slice_iter(text).filter_map(Result::ok);
    let known = certificates.filter_map(|certificate| Validity::of(&certificate));
    known.map(|validity| validity.not_after.as_second()).collect()
}

/// Takes the next element: its tag and its content.
fn element<'a>(input: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, rest) = input.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        let (digits, behind) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.is_empty() || digits.len() > 4 {
            return None;
        }
        length = digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit));
        rest = behind;
    }
    let (content, behind) = rest.split_at_checked(length)?;
    *input = behind;
    Some((tag, content))
}

/// Takes the next element if it has this tag.
fn expect<'a>(input: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    element(input).filter(|found| found.0 == tag).map(|found| found.1)
}

/// Takes a time: `YYMMDDhhmmssZ` of the years 1950 to 2049, or with four digits of the year.
fn time(input: &mut &[u8]) -> Option<Timestamp> {
    let (tag, text) = element(input)?;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i16 = number(year)?;
            (year + if year < 50 { 2_000 } else { 1_900 }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (number(year)?, rest)
        }
        _ => return None,
    };
    let parts: Option<Vec<i8>> =
        (0..rest.len()).step_by(2).map(|at| number(rest.get(at..at + 2)?)).collect();
    let [month, day, hour, minute, second] = parts?.try_into().ok()?;
    let civil = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    Offset::UTC.to_timestamp(civil).ok()
}

fn number<T: std::str::FromStr>(digits: &str) -> Option<T> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate as far as its time: the rest is not looked at.
    fn certificate(times: &[(u8, &str)]) -> Vec<u8> {
        let wrap = |tag: u8, content: Vec<u8>| -> Vec<u8> {
            let length = (content.len() as u16).to_be_bytes();
            [vec![tag, 0x82, length[0], length[1]], content].concat()
        };
        let times = times.iter().flat_map(|(tag, text)| wrap(*tag, text.as_bytes().to_vec()));
        let before = [wrap(VERSION, vec![2, 1, 2]), wrap(2, vec![7]), wrap(SEQUENCE, vec![0; 200])];
        let issuer = wrap(SEQUENCE, vec![1; 300]);
        let signed = [before.concat(), issuer, wrap(SEQUENCE, times.collect())].concat();
        wrap(SEQUENCE, wrap(SEQUENCE, signed))
    }

    fn seconds(text: &str) -> i64 {
        text.parse::<Timestamp>().expect("a time").as_second()
    }

    #[test]
    fn both_forms_of_time_are_read() {
        let der =
            certificate(&[(UTC_TIME, "491231235959Z"), (GENERALIZED_TIME, "20500101000000Z")]);
        let validity = Validity::of(&der).expect("fine");
        assert_eq!(validity.not_before.as_second(), seconds("2049-12-31T23:59:59Z"));
        assert_eq!(validity.not_after.as_second(), seconds("2050-01-01T00:00:00Z"));
        let der = certificate(&[(UTC_TIME, "500101000000Z"), (UTC_TIME, "700101000001Z")]);
        let validity = Validity::of(&der).expect("fine");
        assert_eq!(validity.not_before.as_second(), seconds("1950-01-01T00:00:00Z"));
        assert_eq!(validity.not_after.as_second(), 1);
    }

    #[test]
    fn what_is_over_or_has_not_begun_is_told() {
        let der = certificate(&[(UTC_TIME, "260101000000Z"), (UTC_TIME, "270101000000Z")]);
        let validity = Validity::of(&der).expect("fine");
        let at = |text: &str| validity.complaint(seconds(text));
        assert_eq!(at("2026-06-01T00:00:00Z"), None);
        assert_eq!(i64::try_from(validity.ends_s()), Ok(seconds("2027-01-01T00:00:00Z")));
        assert!(at("2027-01-01T00:00:01Z").is_some_and(|told| told.contains("expired (2027-01")));
        assert!(at("2025-12-31T23:59:59Z").is_some_and(|told| told.contains("from 2026-01-01")));
    }

    #[test]
    fn an_authority_is_known_by_its_extension() {
        let name = [0x06, 0x03, 0x55, 0x1d, 0x13];
        for (value, is_one) in [
            (&[0x01, 0x01, 0xff, 0x04, 0x05, 0x30, 0x03, 0x01, 0x01, 0xff][..], true),
            (&[0x04, 0x05, 0x30, 0x03, 0x01, 0x01, 0xff], true),
            (&[0x04, 0x02, 0x30, 0x00], false),
            (&[0x04, 0x05, 0x30, 0x03, 0x01, 0x01, 0x00], false),
            (&[0x04, 0x05, 0x30], false),
            (&[], false),
        ] {
            assert_eq!(is_of_authority(&[&[7], &name[..], value].concat()), is_one, "{value:?}");
        }
        assert!(!is_of_authority(&name[1..]));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let good = certificate(&[(UTC_TIME, "260101000000Z"), (UTC_TIME, "270101000000Z")]);
        for cut in 0..good.len() - 1 {
            assert_eq!(Validity::of(&good[..cut]), None, "cut at {cut}");
        }
        for at in 0..good.len() {
            for byte in [0, 1, 0x7f, 0x80, 0x84, 0xff] {
                let mut bad = good.clone();
                bad[at] = byte;
                let _ = Validity::of(&bad);
            }
        }
        for times in ["2601010000Z", "26010100000\u{e9}Z", "261301000000Z", "26010100000000", "Z"] {
            assert_eq!(Validity::of(&certificate(&[(UTC_TIME, times); 2])), None, "{times}");
        }
    }
}
