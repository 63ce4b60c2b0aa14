//! INI files as the original service reads them (docs/compat/timer-service.md §2): `[section]`,
//! `key = value`, `#` starts a comment anywhere in a line, a repeated key is a list. Knows no key
//! by name and touches no file.

/// One setting of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IniEntry<'a> {
    /// The section that the setting stands in; empty above the first section.
    pub section: &'a str,
    /// The key's name.
    pub name: &'a str,
    /// The text behind the first `=`, without blanks around it. May be empty.
    pub value: &'a str,
    /// The line's number, from 1.
    pub line: usize,
}

/// A line that is neither a section, nor a setting, nor empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IniError {
    /// The line's number, from 1.
    pub line: usize,
    /// What was expected in that line.
    pub reason: &'static str,
}

/// Returns the settings of a file in their order. `section.key = value` above the first section
/// means the same as `key = value` in that section. Costs one pass, and 64 bytes of memory per
/// setting.
pub fn parse_ini(text: &str) -> Result<Vec<IniEntry<'_>>, IniError> {
    let mut entries = Vec::new();
    let mut section = "";
    for (index, whole) in text.strip_prefix('\u{feff}').unwrap_or(text).split('\n').enumerate() {
        let line = index + 1;
        let refuse = |reason| Err(IniError { line, reason });
        let code = whole.split('#').next().unwrap_or_default().trim();
        if code.is_empty() {
            continue;
        }
        if let Some(rest) = code.strip_prefix('[') {
            match rest.strip_suffix(']').map(str::trim) {
                Some(name) if is_name(name) => section = name,
                Some(_) => return refuse("expected a section such as [cluster]"),
                None => return refuse("expected a \"]\" at the end of the section's name"),
            }
            continue;
        }
        let Some((name, value)) = code.split_once('=') else {
            return refuse("expected key = value, [section], or # and a comment");
        };
        let (name, value) = (name.trim(), value.trim());
        if !is_name(name) {
            return refuse("expected the name of a key before the \"=\"");
        }
        let (section, name) = match name.split_once('.') {
            Some(("", _) | (_, "")) if section.is_empty() => {
                return refuse("expected section.key before the \"=\"");
            }
            Some((_, name)) if section.is_empty() && name.trim_start().starts_with('[') => {
                return refuse("expected the name of a key behind the \".\"");
            }
            Some((section_of_key, name)) if section.is_empty() => {
                (section_of_key.trim(), name.trim())
            }
            _ => (section, name),
        };
        entries.push(IniEntry { section, name, value, line });
    }
    Ok(entries)
}

/// Whether a section or key may have the name. The original takes any name, and ignores what it
/// does not know; here a name can be printed.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(&str, &str, &str, usize)> {
        let entries = parse_ini(text).expect(text);
        entries.iter().map(|e| (e.section, e.name, e.value, e.line)).collect()
    }

    #[test]
    fn files_as_deployments_have_them() {
        let text = "# ours\n[http]\nbind-address = 10.0.0.1 # this one\nbind-port=7253\r\n\n\
                    [cluster]\n  node = a:1\n  node = b:1\n\
                    [sites]\nremote_site=site2=c:1\nlocal_site =\n";
        assert_eq!(
            read(text),
            [
                ("http", "bind-address", "10.0.0.1", 3),
                ("http", "bind-port", "7253", 4),
                ("cluster", "node", "a:1", 7),
                ("cluster", "node", "b:1", 8),
                ("sites", "remote_site", "site2=c:1", 10),
                ("sites", "local_site", "", 11),
            ]
        );
        assert_eq!(
            read("\u{feff}cluster.node = a\nnode = b"),
            [("cluster", "node", "a", 1), ("", "node", "b", 2)]
        );
        assert_eq!(read(""), []);
    }

    #[test]
    fn other_lines_are_told_by_number() {
        for (text, line) in [
            ("[http]\nbind-port 7253", 2),
            ("\n[http", 2),
            ("[]", 1),
            ("= 3", 1),
            ("a\tb = 3", 1),
            (".a = 3", 1),
            ("a. = 3", 1),
            ("x = 1\n\nhello # = 1", 3),
            ("\u{1b}[31m = 1", 1),
        ] {
            assert_eq!(parse_ini(text).expect_err(text).line, line, "{text:?}");
        }
    }
}
