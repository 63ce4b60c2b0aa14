//! Kinds and values of configuration keys. A key's text or TOML value becomes a checked [`Value`],
//! or an error that says what was expected and what was found. This file knows no key by name and
//! touches no file.

// May panic: assertions 6.
// Why it does not: configured 6.

use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;

use toml::de::DeValue;

use super::concealed::{CONCEALED, is_secret};
use crate::base::destinations::DESTINATIONS_MAX;
use crate::base::limits::PEERS_MAX;
use crate::cluster::view::is_node_name;
use crate::node::callbacks::policy::Rule;
use crate::wire::destination::parse_line;

/// Highest core number that a configuration may name: Linux is built for at most 8192 CPUs.
pub(super) const CORE_NUMBER_MAX: usize = 8_191;
/// Most characters of a found value that an error shows, so that a hostile file is not repeated to
/// the terminal.
const FOUND_CHARACTERS_MAX: usize = 60;
/// Longest name of a site, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// The example of an address in messages.
const NAME_EXAMPLE: &str = "\"10.0.0.1:7253\"";

/// The kind of values that a key accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// A whole number within both bounds.
    Integer {
        /// Smallest value accepted.
        min: u64,
        /// Largest value accepted.
        max: u64,
        /// The unit in messages, e.g. `ms`. Empty for a number that counts nothing.
        unit: &'static str,
    },
    /// `true` or `false`.
    Boolean,
    /// An IP address and a port.
    Address,
    /// An IP address and a port by which other nodes know this one as well.
    OwnAddress,
    /// An IP address and a port; empty for none.
    AddressOrNone,
    /// An IP address and a port; `off` for none.
    AddressOrOff,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Free text of at most `bytes_max` bytes without control characters.
    Text {
        /// Longest text accepted, in bytes.
        bytes_max: usize,
    },
    /// CPU cores: `"all"`, a list of numbers, or text such as `"0-3,6"`.
    Cores,
    /// The name of a node, which is its address; empty for none.
    Name,
    /// The name of a site; empty for none.
    Site,
    /// Names of nodes, or addresses.
    Names,
    /// Addresses, with `https://` before those that are asked over TLS.
    Servers,
    /// Other sites, each as `name=address`.
    Sites,
    /// Rules of where callbacks may go.
    Rules,
    /// Destinations and what may be asked of them, a line of words each.
    Destinations,
}

/// A checked value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// A value of [`ValueKind::Integer`].
    Integer(u64),
    /// A value of [`ValueKind::Boolean`].
    Boolean(bool),
    /// A value of [`ValueKind::Address`] or [`ValueKind::OwnAddress`].
    Address(SocketAddr),
    /// A value of [`ValueKind::Choice`], [`ValueKind::Text`], [`ValueKind::Name`],
    /// [`ValueKind::Site`], [`ValueKind::AddressOrNone`] or [`ValueKind::AddressOrOff`].
    Text(String),
    /// A value of [`ValueKind::Cores`]. `None` is every core that the process may run on.
    Cores(Option<Vec<usize>>),
    /// A value of [`ValueKind::Names`], [`ValueKind::Servers`], [`ValueKind::Sites`],
    /// [`ValueKind::Rules`] or [`ValueKind::Destinations`].
    Texts(Vec<String>),
}

/// A value that a key does not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// What the key accepts.
    pub(crate) expected: String,
    /// The value that was found, shortened and made printable.
    pub(crate) found: String,
}

impl ValueKind {
    /// Reads a value from a parsed TOML file.
    pub(crate) fn read_toml(self, value: &DeValue<'_>) -> Result<Value, Mismatch> {
        let mismatch = || self.mismatch(describe_toml(value));
        match (self, value) {
            (ValueKind::Integer { min, max, .. }, DeValue::Integer(integer)) => {
                u64::from_str_radix(integer.as_str(), integer.radix())
                    .ok()
                    .filter(|number| (min..=max).contains(number))
                    .map(Value::Integer)
                    .ok_or_else(mismatch)
            }
            (ValueKind::Boolean, DeValue::Boolean(boolean)) => Ok(Value::Boolean(*boolean)),
            (
                ValueKind::Address
                | ValueKind::OwnAddress
                | ValueKind::AddressOrNone
                | ValueKind::AddressOrOff
                | ValueKind::Choice(_)
                | ValueKind::Text { .. }
                | ValueKind::Cores
                | ValueKind::Name
                | ValueKind::Site,
                DeValue::String(text),
            ) => self.read_text(text),
            (
                ValueKind::Names
                | ValueKind::Servers
                | ValueKind::Sites
                | ValueKind::Rules
                | ValueKind::Destinations,
                DeValue::Array(items),
            ) => {
                let text_of = |item: &toml::Spanned<DeValue<'_>>| match item.get_ref() {
                    DeValue::String(text) => Some(text.to_string()),
                    _ => None,
                };
                // A list with one item more than allowed is refused. More items need not be read.
                let items = items.iter().take(self.items_max() + 1);
                self.read_texts(items.map(text_of).collect::<Option<_>>().ok_or_else(mismatch)?)
            }
            (ValueKind::Cores, DeValue::Array(items)) => {
                // A list longer than the number of CPUs has duplicates, which the check across keys
                // would name one by one. It is refused here, before a hostile file makes a million
                // such messages.
                if items.is_empty() || items.len() > CORE_NUMBER_MAX + 1 {
                    return Err(self.mismatch(format!("a list of {} items", items.len())));
                }
                let read_core = |item: &toml::Spanned<DeValue<'_>>| match item.get_ref() {
                    DeValue::Integer(number) => core_number(number.as_str(), number.radix()),
                    _ => None,
                };
                let cores: Option<Vec<usize>> = items.iter().map(read_core).collect();
                cores.map(|cores| Value::Cores(Some(cores))).ok_or_else(mismatch)
            }
            _ => Err(mismatch()),
        }
    }

    /// Reads a value from a flag or an environment variable.
    pub(crate) fn read_text(self, text: &str) -> Result<Value, Mismatch> {
        let value = match self {
            ValueKind::Integer { min, max, .. } => {
                let digits = text.replace('_', "");
                let number = digits.parse().ok().filter(|number| (min..=max).contains(number));
                number.map(Value::Integer)
            }
            ValueKind::Boolean => text.parse().ok().map(Value::Boolean),
            ValueKind::Address | ValueKind::OwnAddress => text.parse().ok().map(Value::Address),
            ValueKind::AddressOrNone => {
                let is_fine = text.is_empty() || text.parse::<SocketAddr>().is_ok();
                is_fine.then(|| Value::Text(text.into()))
            }
            ValueKind::AddressOrOff => {
                let is_fine = text == "off" || text.parse::<SocketAddr>().is_ok();
                is_fine.then(|| Value::Text(text.into()))
            }
            ValueKind::Choice(words) => words.contains(&text).then(|| Value::Text(text.into())),
            ValueKind::Text { bytes_max } => {
                let is_fine = text.len() <= bytes_max && !text.chars().any(char::is_control);
                is_fine.then(|| Value::Text(text.into()))
            }
            ValueKind::Name => {
                (text.is_empty() || is_node_name(text)).then(|| Value::Text(text.into()))
            }
            ValueKind::Site => {
                (text.is_empty() || is_site_name(text)).then(|| Value::Text(text.into()))
            }
            ValueKind::Names
            | ValueKind::Servers
            | ValueKind::Sites
            | ValueKind::Rules
            | ValueKind::Destinations => {
                return self.read_texts(items_of(text, self.items_max() + 1));
            }
            ValueKind::Cores if text == "all" => Some(Value::Cores(None)),
            ValueKind::Cores => read_cores(text).map(|cores| Value::Cores(Some(cores))),
        };
        value.ok_or_else(|| self.mismatch(quote(text)))
    }

    /// Reads the items of a key whose value is a list of texts. An error shows the
    /// first bad item.
    pub(crate) fn read_texts(self, items: Vec<String>) -> Result<Value, Mismatch> {
        let is_fine = |item: &&String| match self {
            ValueKind::Sites => {
                item.split_once('=').is_some_and(|(n, a)| is_site_name(n) && is_node_name(a))
            }
            ValueKind::Rules => item.parse::<Rule>().is_ok(),
            ValueKind::Servers => is_node_name(item.strip_prefix("https://").unwrap_or(item)),
            _ => is_node_name(item),
        };
        let items_max = self.items_max();
        if items.len() > items_max {
            return Err(self.mismatch(format!("more than {items_max} of them")));
        }
        if self == ValueKind::Destinations {
            return self.read_destinations(items);
        }
        match items.iter().find(|item| !is_fine(item)) {
            Some(item) => Err(self.mismatch(quote(item))),
            None => Ok(Value::Texts(items)),
        }
    }

    /// Reads destinations. An error shows the first bad line, and what is wrong with it.
    fn read_destinations(self, items: Vec<String>) -> Result<Value, Mismatch> {
        let mut names = HashSet::new();
        for item in &items {
            let told = match parse_line(item) {
                Ok((name, _)) if names.insert(name.clone()) => continue,
                Ok(_) => "the destination stands there twice".to_owned(),
                Err(error) => error.to_string(),
            };
            return Err(self.mismatch(format!("{}: {told}", quote(item))));
        }
        Ok(Value::Texts(items))
    }

    /// Most items of a list of texts.
    fn items_max(self) -> usize {
        if self == ValueKind::Destinations { DESTINATIONS_MAX } else { PEERS_MAX }
    }

    /// Returns in words what the key accepts.
    pub(crate) fn expected(self) -> String {
        match self {
            ValueKind::Integer { min, max, unit } => {
                let unit = if unit.is_empty() { String::new() } else { format!(" ({unit})") };
                format!("a whole number from {} to {}{unit}", group(min), group(max))
            }
            ValueKind::Boolean => "true or false".into(),
            ValueKind::Address | ValueKind::OwnAddress => {
                "an IP address and port such as \"0.0.0.0:7253\" or \"[::1]:7253\"".into()
            }
            ValueKind::AddressOrNone => {
                "an IP address and port such as \"0.0.0.0:7443\", or an empty text".into()
            }
            ValueKind::AddressOrOff => {
                "an IP address and port such as \"0.0.0.0:7911\", or \"off\"".into()
            }
            ValueKind::Choice(words) => {
                let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                format!("one of {}", quoted.join(", "))
            }
            ValueKind::Text { bytes_max } => {
                format!("text of at most {bytes_max} bytes without control characters")
            }
            ValueKind::Cores => format!(
                "\"all\", a list such as [0, 1], or text such as \"0-3,6\", of cores 0 to \
                 {CORE_NUMBER_MAX}"
            ),
            ValueKind::Site => "a name such as \"site1\", or an empty text".into(),
            ValueKind::Name => format!("an address such as {NAME_EXAMPLE}, or an empty text"),
            ValueKind::Names => {
                format!("a list of at most {PEERS_MAX} addresses such as [{NAME_EXAMPLE}]")
            }
            ValueKind::Servers => format!(
                "a list of at most {PEERS_MAX} addresses such as [\"10.0.0.1:7254\", \
                 \"https://10.0.0.2:7255\"]"
            ),
            ValueKind::Rules => format!(
                "a list of at most {PEERS_MAX} hosts or addresses, with ports if not all are \
                 meant, such as [\"10.0.0.0/8:8000-8999\", \"[2001:db8::]/32\", \
                 \"*.example.com\"]"
            ),
            ValueKind::Destinations => format!(
                "a list of at most {DESTINATIONS_MAX} destinations such as [\"10.0.0.1:8080 \
                 max-in-flight=8 rate-per-second=100\", \"slow.example paused\"]"
            ),
            ValueKind::Sites => {
                format!("a list of at most {PEERS_MAX} sites such as [\"site2=10.2.0.1:7253\"]")
            }
        }
    }

    fn mismatch(self, found: String) -> Mismatch {
        let mut expected = self.expected();
        if self == ValueKind::Address && found == "\"off\"" {
            expected.push_str(
                " (for none: admin.enabled = false, CHRONOS_ADMIN_ENABLED=false or --admin off)",
            );
        }
        if self == ValueKind::OwnAddress && found == "\"off\"" {
            expected.push_str(
                ", by which other nodes know this one (for no clients there: plain_clients = \
                 false)",
            );
        }
        Mismatch { expected, found }
    }
}

/// The items of a list in a flag or a variable, at most so many: with commas between them, or as a
/// list of JSON, which a TOML file has as well. No item begins with a bracket and a quote.
fn items_of(text: &str, items_max: usize) -> Vec<String> {
    if let Ok(items) = serde_json::from_str::<Vec<String>>(text) {
        return items.into_iter().take(items_max).collect();
    }
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items.take(items_max).map(str::to_owned).collect()
}

impl Value {
    /// Returns the number of a [`ValueKind::Integer`] key. Panics on another kind.
    pub(crate) fn integer(&self) -> u64 {
        match self {
            Value::Integer(number) => *number,
            other => panic!("an integer key never holds {other:?}"),
        }
    }

    /// Returns the value of a [`ValueKind::Boolean`] key. Panics on another kind.
    pub(crate) fn boolean(&self) -> bool {
        match self {
            Value::Boolean(boolean) => *boolean,
            other => panic!("a boolean key never holds {other:?}"),
        }
    }

    /// Returns the address of a [`ValueKind::Address`] or [`ValueKind::OwnAddress`] key. Panics on
    /// another kind.
    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Value::Address(address) => *address,
            other => panic!("an address key never holds {other:?}"),
        }
    }

    /// Returns the text of a [`ValueKind::Text`], [`ValueKind::Choice`], [`ValueKind::Name`],
    /// [`ValueKind::Site`], [`ValueKind::AddressOrNone`] or [`ValueKind::AddressOrOff`] key. Panics
    /// on another kind.
    pub(crate) fn text(&self) -> &str {
        match self {
            Value::Text(text) => text,
            other => panic!("a text key never holds {other:?}"),
        }
    }

    /// Returns the cores of a [`ValueKind::Cores`] key; `None` is every core that the process may
    /// run on. Panics on another kind.
    pub(crate) fn cores(&self) -> Option<Vec<usize>> {
        match self {
            Value::Cores(cores) => cores.clone(),
            other => panic!("a key of cores never holds {other:?}"),
        }
    }

    /// Returns the items of a [`ValueKind::Names`] or [`ValueKind::Sites`] key. Panics on another
    /// kind.
    pub(crate) fn texts(&self) -> &[String] {
        match self {
            Value::Texts(texts) => texts,
            other => panic!("a list key never holds {other:?}"),
        }
    }
}

/// Writes the value as TOML.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Integer(number) => f.write_str(&group(*number)),
            Value::Boolean(boolean) => write!(f, "{boolean}"),
            Value::Address(address) => write!(f, "\"{address}\""),
            Value::Text(text) if is_secret(text) => write!(f, "\"{CONCEALED}\""),
            Value::Text(text) => write!(f, "{}", toml::Value::from(text.as_str())),
            Value::Cores(None) => f.write_str("\"all\""),
            Value::Cores(Some(cores)) => write!(f, "{cores:?}"),
            Value::Texts(texts) => write!(f, "{}", toml::Value::from(texts.clone())),
        }
    }
}

/// Quotes text from outside for a message: printable, at most 60 characters of the text, and
/// nothing of a secret.
pub(super) fn quote(text: &str) -> String {
    if is_secret(text) {
        return CONCEALED.to_owned();
    }
    let mut shown: String = text.chars().take(FOUND_CHARACTERS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

/// Makes text printable without quoting it.
fn quote_bare(text: &str) -> String {
    text.escape_debug().to_string()
}

/// Writes a number with `_` between groups of three digits, as TOML and people read it.
fn group(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push('_');
        }
        grouped.push(digit);
    }
    grouped
}

/// Reports whether a text can name a site. A site's name travels in documents and in lines of
/// files.
fn is_site_name(text: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_graphic() && !b",\"\\=[]#".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_fine)
}

/// Reads `0,1`, `0-3` or `0-3,6`. The order given is the order of the shards.
fn read_cores(text: &str) -> Option<Vec<usize>> {
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (first, last),
            None => (part, part),
        };
        let first = core_number(first.trim(), 10)?;
        let last = core_number(last.trim(), 10)?;
        if first > last || cores.len() > CORE_NUMBER_MAX {
            return None;
        }
        cores.extend(first..=last);
    }
    Some(cores)
}

fn core_number(digits: &str, radix: u32) -> Option<usize> {
    usize::from_str_radix(digits, radix).ok().filter(|&core| core <= CORE_NUMBER_MAX)
}

fn describe_toml(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => quote(text),
        // The parser returns numbers as they stand in the file, control characters included.
        DeValue::Integer(integer) => format!("{:.60}", quote_bare(&integer.to_string())),
        DeValue::Float(float) => format!("{:.60}", quote_bare(float.as_str())),
        DeValue::Boolean(boolean) => boolean.to_string(),
        DeValue::Datetime(_) => "a date".into(),
        DeValue::Array(items) => format!("a list of {} items", items.len()),
        DeValue::Table(_) => "a table".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTION: ValueKind = ValueKind::Integer { min: 2, max: 1_000, unit: "pops" };

    #[test]
    fn a_list_in_a_variable_has_commas_or_is_one_of_json() {
        let read = |text: &str| ValueKind::Names.read_text(text);
        let two = Ok(Value::Texts(vec!["10.0.0.1:7253".into(), "[fd00::1]:7253".into()]));
        assert_eq!(read("10.0.0.1:7253, [fd00::1]:7253"), two);
        assert_eq!(read(r#"["10.0.0.1:7253", "[fd00::1]:7253"]"#), two);
        assert_eq!(read(" [ ] "), Ok(Value::Texts(Vec::new())));
        assert_eq!(read("[fd00::1]:7253"), Ok(Value::Texts(vec!["[fd00::1]:7253".into()])));
        for bad in [r#"["10.0.0.1:7253""#, r#"["10.0.0.1:7253", 7]"#, r#"["a b"]"#] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn who_wants_no_admin_api_is_told_how() {
        let told = |text: &str| ValueKind::Address.read_text(text).expect_err("no address");
        assert!(told("off").expected.contains("CHRONOS_ADMIN_ENABLED=false or --admin off"));
        assert!(!told("of").expected.contains("CHRONOS_ADMIN_ENABLED"));
    }

    #[test]
    fn cores_are_read_in_the_order_given() {
        let cores = |text| ValueKind::Cores.read_text(text).ok().map(|value| value.cores());
        assert_eq!(cores("all"), Some(None));
        assert_eq!(cores("2,0"), Some(Some(vec![2, 0])));
        assert_eq!(cores("0-3, 6"), Some(Some(vec![0, 1, 2, 3, 6])));
        for bad in ["", ",", "a", "3-1", "-1", "0-", "0..3", "99999", "0-99999"] {
            assert_eq!(cores(bad), None, "{bad}");
        }
    }

    #[test]
    fn repeated_ranges_stay_bounded() {
        let hostile = vec!["0-8191"; 10_000].join(",");
        assert!(ValueKind::Cores.read_text(&hostile).is_err());
    }

    #[test]
    fn lists_are_read_from_text_and_told_item_by_item() {
        let names =
            |text: &str| ValueKind::Names.read_text(text).map(|value| value.texts().to_vec());
        assert_eq!(names(""), Ok(vec![]));
        assert_eq!(names("a:1, b"), Ok(vec!["a:1".to_owned(), "b".to_owned()]));
        assert_eq!(names("a:1,b c").expect_err("a space").found, "\"b c\"");
        assert!(names(&"a,".repeat(PEERS_MAX)).is_ok());
        assert!(names(&"a,".repeat(PEERS_MAX + 1)).is_err());
        assert!(ValueKind::Sites.read_text("s=a:1,t=b").is_ok());
        for bad in ["s", "=a", "s=", "s=a b"] {
            assert!(ValueKind::Sites.read_text(bad).is_err(), "{bad}");
        }
        assert_eq!(ValueKind::Name.read_text(""), Ok(Value::Text(String::new())));
        for bad in
            ["n\u{e9}", "[sites]", "../../etc/passwd", "a b", "a:x", "a:0", "-:", "a=b", "a#b"]
        {
            assert!(ValueKind::Name.read_text(bad).is_err(), "{bad}");
            assert!(ValueKind::Names.read_text(bad).is_err(), "{bad}");
            assert!(ValueKind::Sites.read_text(&format!("s={bad}")).is_err(), "{bad}");
        }
        for good in ["fd00::1", "[fd00::1]:7253", "node_1.example", "10.0.0.1"] {
            assert_eq!(ValueKind::Name.read_text(good), Ok(Value::Text(good.into())));
        }
        assert_eq!(ValueKind::Site.read_text("a/b"), Ok(Value::Text("a/b".into())));
        assert!(ValueKind::Site.read_text("[sites]").is_err());
        let shown = Value::Texts(vec!["a:1".into(), "b".into()]).to_string();
        assert_eq!(shown, "[\"a:1\", \"b\"]");
    }

    #[test]
    fn integers_keep_to_their_range() {
        assert_eq!(PORTION.read_text("2"), Ok(Value::Integer(2)));
        assert_eq!(PORTION.read_text("1_000"), Ok(Value::Integer(1_000)));
        for bad in ["1", "1001", "-2", "2.0", "", " 2", "99999999999999999999999"] {
            let mismatch = PORTION.read_text(bad).expect_err(bad);
            assert_eq!(mismatch.expected, "a whole number from 2 to 1_000 (pops)");
            assert_eq!(mismatch.found, format!("{bad:?}"));
        }
    }

    #[test]
    fn numbers_are_grouped_as_toml_allows() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1_000"), (1 << 30, "1_073_741_824")]
        {
            assert_eq!(group(number), text);
        }
    }

    #[test]
    fn long_and_unprintable_text_is_shortened_in_messages() {
        assert_eq!(quote("a\u{7}b"), "\"a\\u{7}b\"");
        assert!(quote(&"x".repeat(1 << 20)).len() < 80);
    }
}
