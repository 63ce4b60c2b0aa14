//! Writes the other sites into the text of a file that names them, each as `name=address`. Sites
//! that the file names already stay in their order.

use toml_edit::value;

use super::list_edits::{
    IniList, edit_ini_list, edit_ini_section, edit_section, keyed_lines, set_list,
};

const SECTION: &str = "sites";
/// The keys of a file of the original service (docs/compat/timer-service.md §2): another site, this
/// site's name, and whether timers are replicated to the others.
const INI_SITE: &str = "remote_site";
const INI_OWN: &str = "local_site";
const INI_REPLICATES: &str = "replicate_timers_across_sites";

/// Edits `[sites]` of a TOML file. A file that does not say whether timers are replicated says so
/// from its first site on.
pub(super) fn edit_toml_sites(text: &str, sites: &[String]) -> Result<String, String> {
    edit_section(text, SECTION, |section| {
        let array = section.get("remote").and_then(|item| item.as_array());
        let texts = array.into_iter().flatten().filter_map(|item| item.as_str());
        let held: Vec<String> = texts.map(str::to_owned).collect();
        set_list(section, "remote", &in_order_of(&held, sites));
        if !sites.is_empty() && !section.contains_key("replicate_across") {
            section.insert("replicate_across", value(true));
        }
    })
}

/// Edits `[sites]` of a file of the original service. The lines that name this site, `own`, stay:
/// deployments give all sites one list.
pub(super) fn edit_ini_sites(text: &str, own: &str, sites: &[String]) -> String {
    edit_ini_section(text, SECTION, |lines| {
        let (mut held, mut replicates) = (Vec::new(), false);
        for (_, key, site) in keyed_lines(lines, SECTION) {
            replicates |= key == INI_REPLICATES;
            if key == INI_SITE {
                held.push(site.to_owned());
            }
        }
        let is_own = |site: &&String| site.split('=').next() == Some(own);
        let own: Vec<String> = held.iter().filter(is_own).cloned().collect();
        let wanted = in_order_of(&held, &[&own, sites].concat());
        let list = IniList { section: SECTION, key: INI_SITE, behind: &[INI_OWN] };
        edit_ini_list(lines, &list, &wanted);
        if !sites.is_empty() && !replicates {
            let behind = [INI_OWN, INI_SITE];
            let list = IniList { section: SECTION, key: INI_REPLICATES, behind: &behind };
            edit_ini_list(lines, &list, &["true".to_owned()]);
        }
    })
}

/// Returns `wanted`: first what is held already, in the order in which that is held.
fn in_order_of(held: &[String], wanted: &[String]) -> Vec<String> {
    let stays = held.iter().filter(|site| wanted.contains(site));
    let new = wanted.iter().filter(|site| !held.contains(site));
    stays.chain(new).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn toml(text: &str, wanted: &str) -> String {
        edit_toml_sites(text, &sites(wanted)).expect("TOML")
    }

    #[test]
    fn only_the_sites_of_a_toml_file_change() {
        let text = "[node]\nlisten = \"a:1\"\n\n[sites]\nlocal = \"x\" # ours\nremote = [\n    \
                    \"y=b:1\", # old\n    \"y=b:2\",\n]\nreplicate_across = false\n";
        let added = toml(text, "z=c:1 y=b:2 y=b:1");
        assert_eq!(added, text.replace("b:2\",\n", "b:2\",\n    \"z=c:1\",\n"));
        assert_eq!(toml(&added, "y=b:1 y=b:2"), text);
        let none = toml(text, "");
        assert!(none.contains("remote = [") && !none.contains("b:1"), "{none}");
        assert!(edit_toml_sites("sites = 1", &sites("y=b:1")).is_err());
    }

    #[test]
    fn the_first_site_of_a_toml_file_is_told_all_timers() {
        let first = toml("[node]\npin = false\n", "y=b:1");
        let section = "\n[sites]\nremote = [\"y=b:1\"]\nreplicate_across = true\n";
        assert_eq!(first, format!("[node]\npin = false\n{section}"));
        assert_eq!(toml("[sites]\nlocal = \"x\"\n", ""), "[sites]\nlocal = \"x\"\n");
    }

    #[test]
    fn a_file_of_the_original_keeps_its_own_site() {
        let text = "[sites]\nlocal_site = x\nremote_site = y=b # east\nremote_site = x=a\n\n\
                    [cluster]\nnode = a\n";
        let added = edit_ini_sites(text, "x", &sites("z=c y=b"));
        let lines = "x=a\nremote_site = z=c\nreplicate_timers_across_sites = true\n";
        assert_eq!(added, text.replace("x=a\n", lines));
        let removed = edit_ini_sites(&added, "x", &sites("z=c"));
        assert_eq!(removed, added.replace("remote_site = y=b # east\n", ""));
        let first = edit_ini_sites("", "x", &sites("y=b"));
        let wanted = "[sites]\nremote_site = y=b\nreplicate_timers_across_sites = true\n";
        assert_eq!(first, wanted);
    }
}
