use super::*;
use crate::cluster::view::View;
use crate::node::callbacks::listeners::Reserved;

fn rules(texts: &[&str]) -> Vec<Rule> {
    texts.iter().map(|text| text.parse().unwrap_or_else(|_| panic!("{text}"))).collect()
}

fn destinations(allow: &[&str], deny: &[&str]) -> Destinations {
    let own = vec!["127.0.0.1:7254".parse().expect("an address")];
    let reserved = Reserved { own, named: Vec::new() };
    let listeners = ClusterListeners::new(reserved, 7253, &View::alone("10.0.0.1:7253"));
    Destinations { listeners, rules: Rules { allow: rules(allow), deny: rules(deny) } }
}

/// What is said of an address, with or without a name before it: `name=address:port`.
fn judge(them: &Destinations, text: &str) -> Result<(), Denial> {
    let (name, address) = match text.split_once('=') {
        Some((name, address)) => (Some(name), address),
        None => (None, text),
    };
    them.judge(name, address.parse().expect(text))
}

#[test]
fn without_rules_only_what_nobody_means_is_denied() {
    let them = destinations(&[], &[]);
    for (text, denial) in [
        ("169.254.169.254:80", Denial::Metadata),
        ("[::ffff:169.254.169.254]:80", Denial::Metadata),
        ("[64:ff9b::a9fe:a9fe]:80", Denial::Metadata),
        ("[fd00:ec2::254]:80", Denial::Metadata),
        ("[fd00:ec2::23]:80", Denial::Metadata),
        ("[fd20:ce::254]:80", Denial::Metadata),
        ("[64:ff9b::10.0.0.1]:7253", Denial::Node),
        ("100.100.100.200:80", Denial::Metadata),
        ("192.0.0.192:80", Denial::Metadata),
        ("168.63.129.16:32526", Denial::Metadata),
        ("169.254.0.1:80", Denial::LinkLocal),
        ("[fe80::1]:80", Denial::LinkLocal),
        ("[febf::1]:80", Denial::LinkLocal),
        ("10.0.0.1:7253", Denial::Node),
        ("127.0.0.1:7254", Denial::Node),
    ] {
        assert_eq!(judge(&them, text), Err(denial), "{text}");
        assert_eq!(them.judge_authority(text), Err(denial), "{text}");
        assert_eq!(judge(&them, &format!("a.example={text}")), Err(denial), "by a name: {text}");
    }
    for text in ["10.0.0.1:80", "127.0.0.1:80", "[fec0::1]:80", "169.253.1.1:80", "1.2.3.4:1"] {
        assert_eq!(judge(&them, text), Ok(()), "{text}");
        assert_eq!(them.judge_authority(text), Ok(()), "{text}");
    }
    for text in ["a.example", "a.example:9", "localhost", "169.254.example", "100.100.100.200a"] {
        assert_eq!(them.judge_authority(text), Ok(()), "{text}");
    }
}

#[test]
fn deny_is_stronger_than_allow() {
    let them = destinations(&["*"], &["10.0.0.0/8", "192.0.2.1:22", "*.corp.example", "db"]);
    for text in [
        "10.255.0.1:80",
        "name=10.1.1.1:80",
        "192.0.2.1:22",
        "a.corp.example=1.2.3.4:80",
        "A.B.Corp.Example.=1.2.3.4:80",
        "DB=1.2.3.4:80",
        "[::ffff:10.1.1.1]:80",
    ] {
        assert_eq!(judge(&them, text), Err(Denial::Rule), "{text}");
    }
    for text in ["192.0.2.1:23", "corp.example=1.2.3.4:80", "dbs=1.2.3.4:80", "11.0.0.0:80"] {
        assert_eq!(judge(&them, text), Ok(()), "{text}");
    }
    assert_eq!(them.judge_authority("x.corp.example:80"), Err(Denial::Rule));
    assert_eq!(them.judge_authority("10.1.1.1"), Err(Denial::Rule));
}

#[test]
fn the_unspecified_address_is_this_machine() {
    let them = destinations(&[], &["127.0.0.0/8", "[::1]"]);
    for text in ["0.0.0.0:80", "[::]:80", "127.9.9.9:80", "[::1]:80"] {
        assert_eq!(judge(&them, text), Err(Denial::Rule), "{text}");
    }
}

#[test]
fn a_rule_means_what_its_address_means() {
    for (rule, address) in [
        ("[::ffff:10.0.0.0]/104", "10.255.0.1:80"),
        ("[::ffff:10.1.1.1]", "10.1.1.1:80"),
        ("[64:ff9b::10.1.1.1]", "[::ffff:10.1.1.1]:80"),
        ("[64:ff9b::]/96", "1.2.3.4:80"),
        ("0.0.0.0", "127.0.0.1:80"),
        ("[::]", "[::1]:80"),
        ("10.1.1.1", "[64:ff9b::10.1.1.1]:80"),
    ] {
        assert_eq!(judge(&destinations(&[], &[rule]), address), Err(Denial::Rule), "{rule}");
        assert_eq!(judge(&destinations(&[rule], &[]), address), Ok(()), "{rule}");
    }
    let them = destinations(&[], &["[::]/0"]);
    assert_eq!(judge(&them, "1.2.3.4:80"), Ok(()), "all of IPv6 is not all of IPv4");
}

#[test]
fn with_allow_all_else_is_denied() {
    let them = destinations(&["*.example.com:8000-8999", "192.0.2.0/24", "[2001:db8::]/32"], &[]);
    for text in [
        "hooks.example.com=1.2.3.4:8000",
        "other=192.0.2.7:80",
        "192.0.2.255:65535",
        "[2001:db8:ffff::1]:80",
    ] {
        assert_eq!(judge(&them, text), Ok(()), "{text}");
    }
    for text in [
        "hooks.example.com=1.2.3.4:9000",
        "example.com=1.2.3.4:8000",
        "badexample.com=1.2.3.4:8000",
        "192.0.3.0:80",
        "[2001:db9::1]:80",
    ] {
        assert_eq!(judge(&them, text), Err(Denial::NotAllowed), "{text}");
    }
    // An allowed name may lead elsewhere.
    let rebound = "hooks.example.com=169.254.169.254:8000";
    assert_eq!(judge(&them, rebound), Err(Denial::Metadata));
    assert_eq!(them.judge_authority("other:80"), Ok(()), "its address may be in a block");
    let them = destinations(&["*.example.com"], &[]);
    assert_eq!(them.judge_authority("other:80"), Err(Denial::NotAllowed));
}

#[test]
fn what_is_denied_by_itself_must_be_named_alone() {
    for (allow, verdict) in [
        (&["*"][..], Err(Denial::Metadata)),
        (&["0.0.0.0/0"], Err(Denial::Metadata)),
        (&["169.0.0.0/8"], Err(Denial::Metadata)),
        (&["169.254.0.0/16"], Ok(())),
        (&["169.254.169.254"], Ok(())),
        (&["169.254.169.254:81"], Err(Denial::Metadata)),
    ] {
        assert_eq!(judge(&destinations(allow, &[]), "169.254.169.254:80"), verdict, "{allow:?}");
    }
    let them = destinations(&["169.254.0.0/16"], &["169.254.169.254"]);
    assert_eq!(judge(&them, "169.254.169.254:80"), Err(Denial::Rule));
    assert_eq!(judge(&them, "169.254.1.1:80"), Ok(()));
    assert_eq!(judge(&destinations(&["10.0.0.1"], &[]), "10.0.0.1:7253"), Err(Denial::Node));
}

#[test]
fn rules_are_read_as_written_or_refused() {
    for text in [
        "*",
        "*:80",
        "10.0.0.0/8",
        "0.0.0.0/0",
        "10.0.0.1:1-65535",
        "[::]/0",
        "[2001:db8::1]:443",
        "*.example.com",
        "a_b-c.example.:80",
    ] {
        assert_eq!(texts_of(&rules(&[text])), [text]);
    }
    for text in [
        "",
        "10.0.0.0/33",
        "10.0.0.0/08",
        "10.0.0.0/+8",
        "10.0.0.0/00",
        "a:+80",
        "a:080",
        "[::]/129",
        "10.0.0.0/",
        "10.0.0/8",
        "::1",
        "[::1",
        "a.example/8",
        "*example",
        "a.*.example",
        "*.*.example",
        "a:0",
        "a:80-79",
        "a:",
        "a:80-",
        "a b",
        "http://a",
        "a/b",
        "1.2.3",
        "\u{e9}",
    ] {
        assert_eq!(text.parse::<Rule>(), Err(NoRule), "{text}");
    }
}
