//! Every path that the server routes stands in the contract, and no other.

use std::collections::BTreeSet;

use chronos::wire::timer_path::{TimerPath, parse_path};
use kit::documents::read;

use super::contract::{Contract, load};

/// Gives each path of clients its place in the contract. A path that is added to the server is no
/// arm of the `match`, so that this file does not compile until it is documented.
macro_rules! places {
    ($($path:pat => $place:expr,)+) => {
        fn place_of(path: &TimerPath) -> Option<&'static str> {
            match path { $($path => $place,)+ }
        }

        const PLACES: &[Option<&str>] = &[$($place),+];
    };
}

places! {
    TimerPath::Collection => Some("/timers"),
    TimerPath::Timer(_) => Some("/timers/{id}"),
    TimerPath::Bulk => Some("/timers/bulk"),
    TimerPath::Named => Some("/timers/by-name/{name}"),
    TimerPath::Action(..) => Some("/timers/{id}/{action}"),
    TimerPath::NamedAction(_) => Some("/timers/by-name/{name}/{action}"),
    TimerPath::Count => Some("/timers/count"),
    TimerPath::DeadLetters => Some("/dead-letters"),
    TimerPath::Replays => Some("/dead-letters/replay"),
    TimerPath::DeadLetter(_) => Some("/dead-letters/{id}"),
    TimerPath::Replay(_) => Some("/dead-letters/{id}/replay"),
    TimerPath::Jobs => Some("/jobs"),
    TimerPath::Job(_) => Some("/jobs/{job}"),
    TimerPath::Ping => Some("/ping"),
    TimerPath::Timestamps => Some("/timestamps"),
    // For nodes, and for nobody.
    TimerPath::References | TimerPath::Compare(_) => None,
    TimerPath::Unknown => None,
}

#[test]
fn every_path_of_clients_is_in_the_contract() {
    let contract = Contract::of(load(), "public.yaml");
    let told: BTreeSet<&str> = contract.operations.iter().map(|one| one.path.as_str()).collect();
    let served: BTreeSet<&str> = PLACES.iter().flatten().copied().collect();
    assert_eq!(told, served);
    for operation in &contract.operations {
        let target = contract.example(&operation.id, &[]).target;
        assert_eq!(place_of(&parse_path(&target)), Some(operation.path.as_str()), "{target}");
    }
}

/// The routes of the admin API: path and method, as its router has them.
fn routes(source: &str) -> BTreeSet<(String, String)> {
    let (_, router) = source.split_once("Router::new()").expect("the router");
    let (router, _) = router.split_once(".layer(").expect("what goes around it");
    let mut found = BTreeSet::new();
    for route in router.split(".route(").skip(1) {
        let (path, methods) = route.trim_start().split_once(',').expect("a path and methods");
        let path = match path.trim().strip_prefix('"') {
            Some(text) => text.trim_end_matches('"').replace("{*", "{"),
            None => constant(path.trim()),
        };
        for method in ["get", "put", "post", "delete", "patch"] {
            if methods.contains(&format!("{method}(")) {
                found.insert((path.clone(), method.to_owned()));
            }
        }
    }
    found
}

/// The text of a constant by which the router names a path.
fn constant(name: &str) -> String {
    let file = match name {
        "console::PATH" => "src/control/admin/console/mod.rs",
        _ => "src/control/admin/guard.rs",
    };
    let source = read(file);
    let word = name.rsplit("::").next().expect("a name");
    let line = source.lines().find(|line| line.contains(&format!("const {word}: &str = ")));
    let line = line.unwrap_or_else(|| panic!("{file}: no {word}"));
    line.split('"').nth(1).expect("a text").to_owned()
}

#[test]
fn every_route_of_the_admin_api_is_in_the_contract() {
    let contract = Contract::of(load(), "admin.yaml");
    let places = contract.operations.iter();
    let plain = |path: &str| path.replace("{destination}", "{name}").replace("{job}", "{id}");
    let told: BTreeSet<(String, String)> =
        places.map(|one| (plain(&one.path), one.method.clone())).collect();
    let served = routes(&read("src/control/admin/api.rs")).into_iter().map(|(path, method)| {
        // A name is all that follows, so the router has one path for it and its actions.
        match path.ends_with("/by-name/{name}") && method == "post" {
            true => (format!("{path}/{{action}}"), method),
            false => (path, method),
        }
    });
    let served: BTreeSet<(String, String)> = served.collect();
    assert!(served.len() > 35, "{served:?}");
    assert_eq!(told, served);
}
