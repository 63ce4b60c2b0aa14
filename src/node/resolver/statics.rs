//! Names that the operator has given targets or addresses: a thin layer in front of all look-ups,
//! as the original service has it (docs/compat/timer-service.md §2).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Names in lower case, without a dot at their end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StaticNames {
    /// The name that is looked up in the place of another one (CNAME).
    targets: HashMap<Box<str>, Arc<str>>,
    /// The addresses of names that are not looked up.
    addresses: HashMap<Box<str>, Arc<[IpAddr]>>,
}

/// The form in which names are compared.
fn plain(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

impl StaticNames {
    /// Has `target` looked up wherever `name` is asked for.
    pub fn set_target(&mut self, name: &str, target: &str) {
        self.targets.insert(plain(name).into(), plain(target).into());
    }

    /// Gives a name its addresses.
    pub fn set_addresses(&mut self, name: &str, addresses: Vec<IpAddr>) {
        self.addresses.insert(plain(name).into(), addresses.into());
    }

    /// How many names have a target or addresses.
    pub fn len(&self) -> usize {
        let both = self.targets.keys().filter(|name| self.addresses.contains_key(*name)).count();
        self.targets.len() + self.addresses.len() - both
    }

    /// The name that is looked up for `name`, which is in lower case. One step: the target of a
    /// target is not followed.
    pub(crate) fn target<'a>(&'a self, name: &'a str) -> &'a str {
        self.targets.get(name.trim_end_matches('.')).map_or(name, |target| target)
    }

    /// The addresses of a name in lower case, if it is not looked up.
    pub(crate) fn addresses(&self, name: &str) -> Option<&Arc<[IpAddr]>> {
        self.addresses.get(name.trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_step_whatever_the_case_and_the_dot() {
        let mut names = StaticNames::default();
        names.set_target("Sprout.Example.", "sprout.site1.example");
        names.set_target("sprout.site1.example", "elsewhere.example");
        names.set_addresses("sprout.site1.example", vec![[10, 0, 0, 1].into()]);
        assert_eq!(names.target("sprout.example"), "sprout.site1.example");
        assert_eq!(names.target("sprout.example."), "sprout.site1.example");
        assert_eq!(names.target("ralf.example"), "ralf.example");
        assert_eq!(names.addresses("sprout.site1.example").map(|all| all.len()), Some(1));
        assert_eq!(names.addresses("sprout.example"), None);
        assert_eq!(names.len(), 2);
    }
}
