//! The token that requests show: where it comes from, where it may go, and how it stays out of
//! reports.

use std::net::SocketAddr;

use anyhow::{Result, ensure};

use crate::flags::ScenarioFlags;

/// The flag that names a token.
const FLAG: &str = "--token";

/// The arguments of this process as reports show them: without tokens.
pub fn shown_arguments() -> String {
    shown(std::env::args().skip(1))
}

fn shown(arguments: impl Iterator<Item = String>) -> String {
    let mut texts = Vec::new();
    let mut is_token = false;
    for argument in arguments {
        let is_joined = argument.strip_prefix(FLAG).is_some_and(|rest| rest.starts_with('='));
        texts.push(match is_token {
            true => "…".to_owned(),
            false if is_joined => format!("{FLAG}=…"),
            false => argument.clone(),
        });
        is_token = !is_token && argument == FLAG;
    }
    texts.join(" ")
}

/// Takes the white space off the token, and checks that the token goes only where others cannot
/// read it. Error: what to do.
pub fn settle(flags: &mut ScenarioFlags) -> Result<()> {
    let token = flags.token.take().map(|token| token.trim().to_owned());
    let Some(token) = token.filter(|token| !token.is_empty()) else { return Ok(()) };
    ensure!(
        token.bytes().all(|byte| matches!(byte, b' '..=b'~')),
        "the token (CHRONOS_TOKEN, or --token) has a character that no token has: expected \
         letters, digits and signs of ASCII"
    );
    let admin = flags.admin.filter(|_| flags.delete);
    let away = |address: &SocketAddr| !address.ip().to_canonical().is_loopback();
    let away = [Some(flags.target), admin].into_iter().flatten().find(away);
    if let Some(address) = away {
        anyhow::bail!(
            "the token (CHRONOS_TOKEN, or --token) would go to {address} in the clear: reach \
             127.0.0.1 through a tunnel, or unset CHRONOS_TOKEN and leave --token out"
        );
    }
    flags.token = Some(token);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Job, command, job};

    #[test]
    fn tokens_stand_in_no_report() {
        let shown = |line: &str| shown(line.split(' ').map(str::to_owned));
        assert_eq!(shown("post --token chr_1 --json"), "post --token … --json");
        assert_eq!(shown("post --token=chr_1 --json"), "post --token=… --json");
        assert_eq!(shown("post --token --token x"), "post --token … x");
    }

    #[test]
    fn a_token_goes_to_loopback_alone() {
        let settled = |line: &str| {
            let words = line.split_whitespace();
            let matches = command().try_get_matches_from(words).unwrap();
            let Ok(Job::Scenario(_, mut flags)) = job(&matches) else { panic!("{line}") };
            settle(&mut flags).map(|()| flags.token)
        };
        let kept = settled("x post --token abc --target [::1]:5").unwrap();
        assert_eq!(kept.as_deref(), Some("abc"));
        assert_eq!(settled("x post --token= --target 10.0.0.1:5").unwrap(), None);
        for away in ["--target 10.0.0.1:5", "--target 0.0.0.0:5", "--delete --admin 10.0.0.1:5"] {
            let error = settled(&format!("x post --token abc {away}")).unwrap_err().to_string();
            assert!(error.contains("in the clear"), "{error}");
        }
        let error = settled("x post --token ab\u{200b}c").unwrap_err().to_string();
        assert!(error.contains("a character that no token has"), "{error}");
    }
}
