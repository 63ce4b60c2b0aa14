//! The contract of docs/openapi, held against real nodes in both directions: each answer that it
//! documents comes from a node, and each answer that a node gives to this suite is documented and
//! is as documented. Stories ask; `contract` judges.

mod admin;
mod admin_trouble;
mod broken;
mod callbacks;
mod contract;
mod documents;
mod node;
mod original;
mod public;
mod public_many;
mod reasons;
mod routes;
mod schemathesis;
mod tls;
mod wire;

use std::thread;

use kit::documents::{expect_none, files_below, read};

use contract::{Contract, load};

/// Tells stories at the same time, and fails with all that they found.
fn hold(file: &'static str, stories: &[fn(&Contract)]) {
    let contract = &Contract::of(load(), file);
    thread::scope(|scope| {
        let told: Vec<_> =
            stories.iter().map(|story| scope.spawn(move || story(contract))).collect();
        for (place, story) in told.into_iter().enumerate() {
            if story.join().is_err() {
                contract.note(format!("story {place} of {file} was not told to its end"));
            }
        }
    });
    expect_none(&contract.findings());
    expect_none(&contract.unseen());
}

#[test]
fn clients_get_what_the_contract_says_and_the_contract_says_what_they_get() {
    hold(
        "public.yaml",
        &[
            broken::requests,
            broken::tokens,
            broken::paths,
            public::one_timer,
            public::warnings,
            public::heads,
            public::names,
            public::keys_and_hosts,
            public::an_original_is_a_member,
            public::timestamps,
            public_many::bulk,
            public_many::lists_and_jobs,
            public_many::dead_letters,
        ],
    );
}

#[test]
fn operators_get_what_the_contract_says_and_the_contract_says_what_they_get() {
    hold(
        "admin.yaml",
        &[
            admin::who_asks,
            admin::paths,
            admin::figures,
            admin::cluster,
            admin::destinations,
            admin::timers,
            admin::letters_and_jobs,
            admin_trouble::a_node_that_has_left,
            admin_trouble::a_member_that_hangs,
            admin_trouble::a_tag_beyond_the_table,
            admin_trouble::a_disk_that_does_not_keep,
            tls::looks_without_a_token,
        ],
    );
}

#[test]
fn what_this_suite_cannot_show_others_do() {
    let tests = files_below("tests").into_iter().chain(files_below("src"));
    let sources: String =
        tests.filter(|name| name.ends_with(".rs")).map(|name| read(&name)).collect();
    let mut count = 0;
    for file in contract::FILES {
        for name in Contract::of(load(), file).shown_elsewhere() {
            count += 1;
            assert!(sources.contains(&format!("fn {name}()")), "{file}: no test {name}");
        }
    }
    assert_eq!(count, 2, "a list that grows is no contract");
}
