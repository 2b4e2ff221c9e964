//! `han trace`: the tables and the picture.

use std::fs;

use roxmltree::Document;

use crate::roles::job;
use crate::traced::{Traced, folder, han_trace};

/// A picture's lanes, as (rank, name, boxes).
fn lanes(svg: &str) -> Vec<(String, String, usize)> {
    let document = Document::parse(svg).unwrap();
    let lanes = document.descendants().filter(|node| node.attribute("class") == Some("lane"));
    lanes
        .map(|lane| {
            let of = |name| lane.attribute(name).unwrap().to_owned();
            let boxes = lane.children().filter(|node| node.has_tag_name("rect"));
            for rect in boxes.clone() {
                let number = |name| rect.attribute(name).unwrap().parse::<f64>().unwrap();
                assert!(number("x") >= 0.0 && number("width") > 0.0);
                assert!(rect.first_element_child().unwrap().text().unwrap().contains(" us"));
            }
            (of("data-rank"), of("data-lane"), boxes.count())
        })
        .collect()
}

#[test]
fn a_recorded_job_is_drawn() {
    let (folder, file) = folder();
    job(&["-n", "2"], "few", &file).finish().expect(0, &[]);
    let picture = folder.path().join("picture.svg");
    let words = [file.to_str().unwrap(), "--svg", picture.to_str().unwrap()];
    let text = han_trace(&words).unwrap();
    for part in ["2 ranks on 1 node,", "| allreduce | 8000", "| bcast ", "last rank late"] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    let traced = Traced::read(&file);
    let drawn = lanes(&fs::read_to_string(&picture).unwrap());
    let expected: Vec<_> = (0..2)
        .flat_map(|rank| traced.lanes(rank).into_iter().map(move |lane| (rank.to_string(), lane.to_owned())))
        .collect();
    assert_eq!(drawn.iter().map(|(rank, lane, _)| (rank.clone(), lane.clone())).collect::<Vec<_>>(), expected);
    let boxes: usize = drawn.iter().map(|(.., boxes)| boxes).sum();
    assert_eq!(boxes, (0..2).map(|rank| traced.spans(rank).len()).sum::<usize>());

    // One call alone.
    let text = han_trace(&[&words[..], &["--call", "2"]].concat()).unwrap();
    assert!(text.contains("| allreduce | 8000") && !text.contains("bcast"), "{text}");
    let boxes: Vec<usize> =
        lanes(&fs::read_to_string(&picture).unwrap()).into_iter().map(|(.., boxes)| boxes).collect();
    assert_eq!(boxes.iter().sum::<usize>(), 2);
}

/// A trace of two ranks with tasks: on rank 0, a leader, the second half of `sb` lies beside `ib`.
const TASKS: &str = r#"{"displayTimeUnit":"ns","otherData":{"producer":"han","job":"j","size":2,"whole":true,"ranks":[
{"rank":0,"last":true,"node":0,"host":"a & <b>","pid":1,"spans":4,"dropped":2,"clock":"c","clock_error_ns":0,"marks":[]},
{"rank":1,"last":true,"node":0,"host":"a & <b>","pid":2,"spans":1,"dropped":0,"clock":"d","clock_error_ns":1500,"marks":[]}
]},"traceEvents":[
{"name":"thread_name","ph":"M","pid":0,"tid":0,"args":{"name":"calls"}},
{"name":"thread_name","ph":"M","pid":0,"tid":1,"args":{"name":"node down"}},
{"name":"thread_name","ph":"M","pid":0,"tid":2,"args":{"name":"rail 0"}},
{"name":"thread_name","ph":"M","pid":1,"tid":0,"args":{"name":"calls"}},
{"name":"thread_name","ph":"M","pid":1,"tid":1,"args":{"name":"node down"}},
{"name":"thread_name","ph":"M","pid":1,"tid":2,"args":{"name":"node up"}},
{"name":"bcast","cat":"call","ph":"X","ts":1000.0,"dur":40.0,"pid":0,"tid":0,"args":{"communicator":0,"number":0,"bytes":64,"choice":"x","error":"<no>"}},
{"name":"ib","cat":"task","ph":"X","ts":1000.0,"dur":10.0,"pid":0,"tid":2,"args":{"kind":"ib","level":"network","chunk":0,"communicator":0,"number":0}},
{"name":"ib","cat":"task","ph":"X","ts":1010.0,"dur":10.0,"pid":0,"tid":2,"args":{"kind":"ib","level":"network","chunk":1,"communicator":0,"number":0}},
{"name":"sb","cat":"task","ph":"X","ts":1015.0,"dur":10.0,"pid":0,"tid":1,"args":{"kind":"sb","level":"memory","chunk":0,"communicator":0,"number":0}},
{"name":"sb","cat":"task","ph":"X","ts":1017.0,"dur":9.5,"pid":1,"tid":1,"args":{"kind":"sb","level":"memory","chunk":12,"communicator":0,"number":0}}
]}"#;

#[test]
fn the_overlap_of_tasks_is_measured_and_drawn() {
    let (folder, file) = folder();
    fs::write(&file, TASKS).unwrap();
    let picture = folder.path().join("picture.svg");
    let text = han_trace(&[file.to_str().unwrap(), "--svg", picture.to_str().unwrap()]).unwrap();
    // Tasks of the call on each rank: sr, ir, ib, ia, sa, sb, memory, network, either, overlap.
    let table = text.split_once("overlap |").unwrap().1;
    let rows = table.lines().filter(|line| line.starts_with("| bcast"));
    let rows: Vec<String> =
        rows.map(|row| row.split(['|', ' ']).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        rows,
        [
            "bcast 64 0 0.000 0.000 20.0 0.000 0.000 10.0 10.0 20.0 25.0 0.50",
            "bcast 64 1 0.000 0.000 0.000 0.000 0.000 9.500 9.500 0.000 9.500 -",
        ]
    );
    assert!(text.contains("2 older spans were dropped") && text.contains("agree to 1.500 us"), "{text}");

    // Rows without anything are left out.
    let svg = fs::read_to_string(&picture).unwrap();
    let names = |(rank, lane, boxes): &(String, String, usize)| format!("{rank} {lane} {boxes}");
    let drawn: Vec<String> = lanes(&svg).iter().map(names).collect();
    assert_eq!(drawn, ["0 calls 1", "0 node down 1", "0 rail 0 2", "1 calls 0", "1 node down 1"]);
    let document = Document::parse(&svg).unwrap();
    let texts: Vec<&str> =
        document.descendants().filter(|node| node.has_tag_name("text")).filter_map(|node| node.text()).collect();
    // Numbers of chunks, the legend of what is there and of nothing else, the axis.
    for text in ["0", "1", "12", "sb: bcast in the node", "ib: bcast between nodes", "20 us"] {
        assert!(texts.contains(&text), "{text:?} in {texts:?}");
    }
    assert!(!texts.iter().any(|text| text.starts_with("sr:")), "{texts:?}");
}

/// [`TASKS`] with the call on rank 1, too, which comes long after the first has left.
fn late() -> String {
    let call = r#"{"name":"bcast","cat":"call","ph":"X","ts":3000.0,"dur":40.0,"pid":1,"tid":0,"args":{"communicator":0,"number":0,"bytes":64,"choice":"x"}}"#;
    format!("{},\n{call}\n]}}", TASKS.strip_suffix("\n]}").unwrap())
}

#[test]
fn a_window_does_not_hide_who_came_first() {
    let (_folder, file) = folder();
    fs::write(&file, late()).unwrap();
    for window in [&[][..], &["--from", "1"], &["--to", "1"]] {
        let text = han_trace(&[&[file.to_str().unwrap()], window].concat()).unwrap();
        let row = text.lines().find(|line| line.starts_with("| bcast") && line.contains("| x ")).unwrap();
        let cells: Vec<&str> = row.split(['|', ' ']).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells, ["bcast", "64", "x", "1", "1", "40.0", "40.0", "2000"], "{window:?}");
        assert!(!text.contains("-0.000"), "{text}");
    }
}

#[test]
fn who_is_of_another_group_is_not_late() {
    let (_folder, file) = folder();
    fs::write(
        &file,
        late().replacen(
            "\"dur\":40.0,\"pid\":1,\"tid\":0,\"args\":{",
            "\"dur\":40.0,\"pid\":1,\"tid\":0,\"args\":{\"group\":1,",
            1,
        ),
    )
    .unwrap();
    let text = han_trace(&[file.to_str().unwrap()]).unwrap();
    let row = text.lines().find(|line| line.starts_with("| bcast") && line.contains("| x ")).unwrap();
    let cells: Vec<&str> = row.split(['|', ' ']).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells, ["bcast", "64", "x", "2", "1", "40.0", "40.0", "0.000"], "{text}");
}

#[test]
fn a_picture_is_not_written_over_the_trace() {
    let (folder, file) = folder();
    fs::write(&file, TASKS).unwrap();
    let [link, merged] = ["link", "merged.json"].map(|name| folder.path().join(name));
    fs::hard_link(&file, &link).unwrap();
    let [name, link, merged] = [&file, &link, &merged].map(|path| path.to_str().unwrap());
    let other = "is no picture, and stays as it is";
    for (svg, why) in [(name, other), (link, other), (merged, "would write over the trace")] {
        let error = han_trace(&[name, "--merge", merged, "--svg", svg]).unwrap_err();
        assert!(error.contains(why), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), TASKS);
        assert!(!fs::exists(merged).unwrap());
    }
    fs::write(merged, "precious").unwrap();
    let error = han_trace(&[name, "--merge", merged]).unwrap_err();
    assert!(error.contains("is no trace, and stays as it is"), "{error}");
}

/// Such numbers went round and round, or made an axis without end.
#[test]
fn files_with_impossible_times_and_ranks_are_damaged() {
    let (folder, _) = folder();
    let file = folder.path().join("damaged.json");
    let refused = |rank: &str, times: &str| {
        let about =
            format!(r#"{rank},"last":true,"host":"a","pid":1,"spans":1,"dropped":0,"clock":"","clock_error_ns":0"#);
        let other = format!(r#"{{"job":"x","size":1,"whole":true,"ranks":[{{{about},"marks":[]}}]}}"#);
        let event = format!(r#"{{"name":"bcast","cat":"call","ph":"X",{times},"pid":0,"tid":0,"args":{{}}}}"#);
        let text = format!(r#"{{"displayTimeUnit":"ns","otherData":{other},"traceEvents":[{event}]}}"#);
        fs::write(&file, text).unwrap();
        han_trace(&[file.to_str().unwrap()]).unwrap_err()
    };
    let right = r#""rank":0,"node":0"#;
    for times in [r#""ts":1e300,"dur":1"#, r#""ts":-1e16,"dur":1"#, r#""ts":0,"dur":-5"#, r#""ts":0,"dur":1e300"#] {
        let said = refused(right, times);
        assert!(said.contains("is damaged: bcast of ") && said.contains(" us on"), "{times}: {said}");
    }
    for rank in [r#""rank":7,"node":0"#, r#""rank":0,"node":18446744073709551615"#] {
        let said = refused(rank, r#""ts":0,"dur":1"#);
        assert!(said.contains("is damaged: rank ") && said.contains(" of 1 ranks"), "{rank}: {said}");
    }
}

#[test]
fn a_picture_replaces_pictures_only() {
    let (folder, file) = folder();
    fs::write(&file, TASKS).unwrap();
    let there = folder.path().join("there");
    let draw = || han_trace(&[file.to_str().unwrap(), "--svg", there.to_str().unwrap()]);
    let head = r#"<?xml version="1.0" encoding="UTF-8"?>"#;
    for other in ["<?xml", &format!("{head}\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology/>\n")] {
        fs::write(&there, other).unwrap();
        assert!(draw().unwrap_err().contains("is no picture, and stays as it is"), "{other}");
        assert_eq!(fs::read_to_string(&there).unwrap(), other);
    }
    for picture in ["", "<svg/>", &format!("{head}\n<!-- by hand -->\n<svg/>\n")] {
        fs::write(&there, picture).unwrap();
        draw().unwrap();
        assert!(fs::read_to_string(&there).unwrap().ends_with("</svg>\n"), "{picture}");
    }
}
