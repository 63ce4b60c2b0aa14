//! The Dockerfile, read as far as a mistake would be felt.

use kit::documents::{read, root};

/// The instructions: a word and the rest, lines that go on joined.
fn instructions(text: &str) -> Vec<(String, String)> {
    let text = text.replace("\\\n", " ");
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let split = |line: &str| {
        line.split_once(' ').map(|(word, rest)| (word.to_owned(), rest.trim().to_owned()))
    };
    lines.map(|line| split(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

pub fn dockerfile() {
    let found = instructions(&read("packaging/docker/Dockerfile"));
    let all = |word: &str| -> Vec<&str> {
        found.iter().filter(|one| one.0 == word).map(|one| one.1.as_str()).collect()
    };
    let known = [
        "FROM",
        "RUN",
        "WORKDIR",
        "COPY",
        "ARG",
        "USER",
        "VOLUME",
        "EXPOSE",
        "STOPSIGNAL",
        "ENTRYPOINT",
        "CMD",
    ];
    assert!(found.iter().all(|one| known.contains(&one.0.as_str())), "{found:?}");
    let from = all("FROM");
    assert_eq!(from.len(), 2, "one stage builds, one runs");
    for image in &from {
        let image = image.split(' ').next().expect("a word");
        assert!(image.contains(':') && !image.ends_with(":latest"), "{image} is of no version");
    }
    let wanted = read("Cargo.toml");
    let wanted = wanted.lines().find_map(|line| line.strip_prefix("rust-version = \""));
    let wanted = wanted.expect("a version of Rust").trim_end_matches('"');
    assert!(
        from[0].starts_with(&format!("rust:{wanted}-")),
        "{} builds what needs {wanted}",
        from[0]
    );
    let user = all("USER");
    assert_eq!(user.len(), 1);
    let ids: Vec<u32> = user[0].split(':').map(|id| id.parse().expect("a number")).collect();
    assert!(ids.len() == 2 && ids.iter().all(|id| *id >= 1000), "{ids:?}");
    for word in ["ENTRYPOINT", "CMD"] {
        let list: Vec<String> = serde_json::from_str(all(word)[0]).expect("a list: no shell");
        assert!(!list.is_empty());
    }
    for copy in all("COPY").into_iter().filter(|copy| !copy.starts_with("--from=")) {
        for file in copy.split(' ').filter(|file| !file.starts_with('/')) {
            assert!(root().join(file).exists(), "COPY {file}");
        }
    }
    assert!(all("EXPOSE")[0].contains("7253"));
}
