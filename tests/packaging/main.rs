//! What packages and images are made of, held against the program: manual pages, completions, the
//! configuration and unit of packages, alarms and dashboards, manifests of containers.
//!
//! `packaging/test` tries the packages themselves, and does what takes minutes.

mod clusters;
mod compose;
mod image;
mod kubernetes;
mod manual;
mod metrics;
mod unit;
mod yaml;

use kit::runner::{self, Story};

/// The binary under test.
const CHRONOS: &str = env!("CARGO_BIN_EXE_chronos");

const STORIES: &[Story] = &[
    ("compose_forms_a_cluster", clusters::compose_forms_a_cluster),
    ("kubernetes_forms_a_cluster", clusters::kubernetes_forms_a_cluster),
    ("alarms_and_dashboards_name_metrics_that_are_served", metrics::names_are_served),
    ("alarms_ring_and_are_silent_as_their_tests_say", metrics::alarms_are_tested),
    ("every_alarm_says_what_to_do", metrics::alarms_say_what_to_do),
    ("every_alarm_of_a_node_is_one_for_prometheus", metrics::alarms_of_nodes_ring),
    ("each_command_has_a_manual_page_with_its_flags", manual::pages_have_flags),
    ("shells_take_the_completions", manual::completions_are_scripts),
    ("the_unit_of_packages_is_that_of_tuning", unit::unit_is_that_of_tuning),
    ("the_configuration_of_packages_is_safe", unit::configuration_is_safe),
    ("scripts_are_scripts", unit::scripts_are_scripts),
    ("compose_gives_nodes_no_rights_that_they_do_not_need", compose::rights),
    ("what_compose_names_is_there", compose::references),
    ("manifests_name_what_is_there", kubernetes::references),
    ("pods_have_no_rights_that_they_do_not_need", kubernetes::rights),
    ("variables_of_manifests_are_keys", kubernetes::variables_are_keys),
    ("the_image_runs_as_nobody_of_weight", image::dockerfile),
];

fn main() -> std::process::ExitCode {
    runner::run(STORIES)
}

/// Runs the program to its end. Panics with what it said if it fails.
fn chronos(arguments: &[&str]) -> String {
    use kit::children::{Tied, command};
    let mut command = command(CHRONOS);
    command.args(arguments).env_clear();
    let output = command.output_tied().expect("the binary runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {}\n{errors}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// Runs another program with these arguments, if it is there; panics with what it said if it fails.
fn other(program: &str, arguments: &[&str]) -> Option<String> {
    use kit::children::{Tied, command};
    let mut command = command(program);
    command.args(arguments).current_dir(kit::documents::root());
    let is_there = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    });
    if !is_there {
        println!("LEFT OUT: {program} is not there");
        return None;
    }
    let output = command.output_tied().expect("it runs");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{said}", output.status);
    Some(said)
}
