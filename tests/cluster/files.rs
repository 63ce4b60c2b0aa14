//! The files of an existing deployment (docs/compat/timer-service.md §2), as its scripts write
//! them.

use std::fmt::Write;
use std::path::Path;

/// The roles of a cluster's nodes. A node is given by the number of its place.
#[derive(Clone, Debug, Default)]
pub struct Roles {
    /// The nodes that stay: the key `node`.
    pub staying: Vec<usize>,
    /// The nodes that join: the key `joining`.
    pub joining: Vec<usize>,
    /// The nodes that leave: the key `leaving`.
    pub leaving: Vec<usize>,
}

impl Roles {
    /// Makes the roles of a cluster at rest.
    pub fn staying(places: &[usize]) -> Roles {
        Roles { staying: places.to_vec(), ..Roles::default() }
    }

    /// Returns the same roles while these places join.
    pub fn with_joining(self, places: &[usize]) -> Roles {
        Roles { joining: places.to_vec(), ..self }
    }

    /// Returns the same roles while these places leave.
    pub fn with_leaving(self, places: &[usize]) -> Roles {
        Roles { leaving: places.to_vec(), ..self }
    }

    /// Returns the names of the nodes that stay, join and leave, each list in order.
    pub fn names(&self, names: &[String]) -> [Vec<String>; 3] {
        [&self.staying, &self.joining, &self.leaving].map(|places| {
            let mut list: Vec<_> = places.iter().map(|place| names[*place].clone()).collect();
            list.sort();
            list
        })
    }
}

/// Returns the cluster file of the member `name`.
pub fn cluster_file(name: &str, roles: &Roles, names: &[String]) -> String {
    let mut text = format!("[cluster]\nlocalhost = {name}\n");
    let lists =
        [("node", &roles.staying), ("joining", &roles.joining), ("leaving", &roles.leaving)];
    for (key, places) in lists {
        for place in places {
            writeln!(text, "{key} = {}", names[*place]).expect("memory");
        }
    }
    text
}

/// Writes a file as a careful script does: first the whole text aside, then the rename.
pub fn replace(path: &Path, text: &str) {
    let aside = path.with_extension("new");
    std::fs::write(&aside, text).expect("a file in the folder of the story");
    std::fs::rename(&aside, path).expect("renamed in its folder");
}
