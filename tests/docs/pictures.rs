//! The recordings of docs/casts: each picture is drawn from its cast, and from nothing else.

use kit::children::{Tied, command};
use kit::documents::root;

use super::{exists, files_below, read};

#[test]
fn pictures_are_drawn_from_their_casts() {
    let casts = files_below("docs/casts").into_iter().filter(|name| name.ends_with(".cast"));
    let casts: Vec<String> = casts.collect();
    assert!(!casts.is_empty(), "no cast in docs/casts");
    for cast in casts {
        let mut draw = command("python3");
        draw.args(["docs/casts/cast.py", "draw", &cast]).current_dir(root());
        let drawn = draw.output_tied().expect("python3 is installed");
        let said = String::from_utf8_lossy(&drawn.stderr);
        assert!(drawn.status.success(), "{cast}: {said}");
        let picture = cast.replace(".cast", ".svg");
        let is_same = exists(&picture) && read(&picture).as_bytes() == drawn.stdout;
        assert!(
            is_same,
            "{picture} is not what docs/casts/cast.py draws from {cast}: draw it anew"
        );
        let story = cast.trim_end_matches(".cast");
        assert!(exists(story), "{cast} has no story {story} that records it");
    }
}
