//! What must hold for the parsers of rules of destinations, see `targets`.

use chronos::base::destinations::{IN_FLIGHT_MAX, PER_1000_S_MAX, Rule};
use chronos::wire::destination::{
    ORDERED_BYTES_MAX, Ordered, destination_of, destination_to, parse_line, parse_rule, write_line,
    write_rule,
};
use chronos::wire::timer_json::JsonScratch;

/// Bodies of orders: what is taken is within every limit and has one form; what is refused is told
/// in a line.
pub fn destination_rule(data: &[u8]) -> bool {
    match parse_rule(&mut data.to_vec(), &mut JsonScratch::default()) {
        Ok(rule) => {
            check(&rule);
            let mut again = String::new();
            write_rule(&rule, &mut again);
            let parsed = parse_rule(&mut again.into_bytes(), &mut JsonScratch::default());
            assert_eq!(parsed, Ok(rule), "written again, it is the same rule");
            true
        }
        Err(error) => {
            let told = error.to_string();
            assert!(!told.is_empty() && !told.contains(['\n', '\r', '\0']), "{told:?}");
            false
        }
    }
}

/// Lines of configurations, of files and of peers: a line that is written again is the same, and a
/// destination has one form.
pub fn destination_line(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    let line = parse_line(&text);
    if let Ok((name, rule)) = &line {
        check(rule);
        assert_eq!(destination_of(name).as_deref(), Ok(&**name), "it is in its one form");
        assert!(
            destination_to(name).starts_with(&**name),
            "callbacks with this authority go there"
        );
        assert_eq!(parse_line(&write_line(name, rule)), Ok((name.clone(), *rule)));
    }
    let ordered = Ordered::parse(&text);
    if let Some(ordered) = &ordered {
        assert!(text.len() <= ORDERED_BYTES_MAX);
        let mut again = String::new();
        ordered.write(&mut again);
        let again = again.strip_suffix('\n').expect("a line");
        assert!(!again.contains('\n'));
        assert_eq!(Ordered::parse(again).as_ref(), Some(ordered));
    }
    line.is_ok() || ordered.is_some()
}

fn check(rule: &Rule) {
    assert!(rule.max_in_flight.is_none_or(|max| (1..=IN_FLIGHT_MAX).contains(&max)));
    assert!(rule.per_1000_s.is_none_or(|rate| (1..=PER_1000_S_MAX).contains(&rate)));
}
