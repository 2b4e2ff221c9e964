//! The library under MPI programs: compiled for Debian's MPICH, started by its `mpiexec`, with and without it.
//!
//! A tool that is missing fails these tests with a hint at `make deps`. Other MPIs: `make check-mpi`.
#![allow(clippy::unwrap_used)]

mod nonlocal;
mod program;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use program::{Report, Run, compile, compile_with, copy_mpi, header};

#[test]
fn every_collective_however_it_is_described() {
    let program = compile("collectives.c", &[]);
    for ranks in 1..=4 {
        Run::of(&program, ranks).passes();
        Run::of(&program, ranks).with("HAN_MPI_AFTER", "0").passes();
    }
}

#[test]
fn what_was_done_is_reported() {
    let program = compile("collectives.c", &[]);
    let run = Run::of(&program, 3).with("HAN_MPI_REPORT", "1").with("HAN_MPI_AFTER", "4");
    let report = run.passes();
    // 7 lengths and one barrier; a bcast is never left to the MPI on the world.
    let world = |line: &str| report.line(line).taken;
    assert_eq!((world("barrier"), world("reduce")), (3, 21));
    assert!(world("bcast") >= 30 && world("allreduce") >= 51, "{}", report.text);
    assert_eq!(report.line("reduce").bytes, 21 * 8 * (1 + 8 + 64 + 512 + 4096 + 32768 + 262_144) / 7);
    let reasons = &report.line("allreduce").reasons;
    // Two ranks of three are alone every now and then; the intercommunicator is everybody's.
    for reason in ["new communicator: ", "one rank: ", "intercommunicator: 3"] {
        assert!(reasons.contains(reason), "{}", report.text);
    }
}

#[test]
fn operators_of_the_program_reduce_its_structures() {
    let program = compile("records.c", &[]);
    for ranks in [2, 3] {
        let report = Run::of(&program, ranks).with("HAN_MPI_REPORT", "1").passes();
        let allreduce = report.line("allreduce");
        // Of each rank 5 + 3 + 2, but for the one whose elements are longer than records.
        assert_eq!(allreduce.taken, 9 * ranks as u64, "{}", report.text);
        assert_eq!(allreduce.reasons, format!("datatype: {ranks}"), "{}", report.text);
    }
}

#[test]
fn elements_without_gaps_are_broadcast_from_where_they_are() {
    let report = Run::of(&compile("wide.c", &[]), 2).with("HAN_MPI_REPORT", "1").passes();
    assert_eq!(report.line("bcast").taken, 4 * 2, "{}", report.text);
}

#[test]
fn what_a_program_keeps_in_the_padding_of_pairs_stays() {
    let program = compile("padding.c", &[]);
    for ranks in [2, 3] {
        let report = Run::of(&program, ranks).with("HAN_MPI_REPORT", "1").passes();
        // But for the operator of the program's own where calls return at once.
        assert_eq!(report.line("allreduce").taken, 4 * (3 * 3 + 2) * ranks as u64, "{}", report.text);
    }
}

/// In the program, or behind this library, where the program's call comes to this library first.
#[test]
fn a_tool_sees_every_call_wherever_it_stands() {
    let tool = compile("tool.c", &["-shared", "-fPIC"]);
    let taken = |report: Report| report.line("allreduce").taken;
    let run = |program: &Path| Run::of(program, 2).with("HAN_MPI_AFTER", "0").with("HAN_MPI_REPORT", "1");
    let program = compile("tooled.c", &["-DWITH_TOOL"]);
    assert_eq!(taken(run(&program).passes()), 2 * 2 * 7);
    let program = compile("tooled.c", &["-ldl"]);
    assert_eq!(taken(run(&program).before(&tool).passes()), 2 * 2 * 7);
}

/// Linked with no MPI, and behind this library, for a module whose MPI is out of everybody else's sight.
#[test]
fn a_tool_sees_the_calls_of_modules_too() {
    let tool = compile_with("cc", "c/tool.c", &["-shared", "-fPIC", &header()]);
    let module = compile("tooled.c", &["-shared", "-fPIC", "-Dmain=run"]);
    let program = compile_with("cc", "c/opens.c", &[]);
    let run = Run::of(&program, 2).opening(&module).before(&tool);
    let report = run.with("HAN_MPI_AFTER", "0").with("HAN_MPI_REPORT", "1").passes();
    assert_eq!(report.line("allreduce").taken, 2 * 2 * 7, "{}", report.text);
}

#[test]
fn a_program_with_a_stand_in_for_mpi_keeps_it() {
    compile("stub.c", &["-shared", "-fPIC", "-Wl,-soname,stub", "-Wl,--as-needed"]);
    let flags = ["-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed", "./stub", "-Wl,--as-needed"];
    Run::of(&compile("serial.c", &flags), 1).passes();
}

/// As vendors call it, and as interpreters open it.
#[test]
fn an_mpi_that_a_module_alone_sees_is_found_whatever_its_file_is_called() {
    copy_mpi("libmpi_xy.so.1");
    let flags = ["-shared", "-fPIC", "-Dmain=run", "-Wl,-rpath,$ORIGIN"];
    let libraries = ["-Wl,--no-as-needed", "./libmpi_xy.so.1", "-Wl,--as-needed"];
    let module = compile("collectives.c", &[&flags[..], &libraries].concat());
    let program = compile_with("cc", "c/opens.c", &[]);
    let run = || Run::of(&program, 2).opening(&module).with("HAN_MPI_REPORT", "1");
    let report = run().passes();
    assert!(report.line("allreduce").taken > 0, "{}", report.text);
    run().with("HAN_MPI", "0").passes();
}

#[test]
fn messages_go_on_while_a_rank_waits() {
    let program = compile("progress.c", &[]);
    for ranks in 2..=3 {
        Run::of(&program, ranks).passes();
    }
}

#[test]
fn what_was_sent_before_a_collective_is_there_after_it() {
    let program = compile("arrived.c", &[]);
    for ranks in 2..=4 {
        Run::of(&program, ranks).passes();
    }
}

#[test]
fn threads_have_collectives_at_the_same_time() {
    let program = compile("threads.c", &["-pthread"]);
    Run::of(&program, 2).with("HAN_MPI_AFTER", "1").passes();
}

#[test]
fn operators_of_the_program_are_the_mpis_where_threads_are_on_any_rank() {
    let program = compile("threadoperators.c", &["-pthread"]);
    let run = || Run::of(&program, 2).with("HAN_MPI_AFTER", "0").with("HAN_MPI_REPORT", "1");
    for run in [run(), run().first("ONE_THREAD", "1")] {
        let report = run.passes();
        let allreduce = report.line("allreduce");
        assert_eq!((allreduce.taken, &*allreduce.reasons), (360, "operator, and threads: 360"), "{}", report.text);
    }
}

#[test]
fn a_handle_that_another_thread_has_just_freed_is_a_new_communicators() {
    let program = compile("handleagain.c", &["-pthread"]);
    let slow = compile("slowfree.c", &["-shared", "-fPIC"]);
    for after in ["0", "4"] {
        Run::of(&program, 2).before(&slow).with("HAN_MPI_AFTER", after).passes();
    }
}

#[test]
fn a_thread_hears_of_a_failure_that_another_has_found() {
    let program = compile("threaderrors.c", &["-pthread"]);
    let slow = compile("slow.c", &["-shared", "-fPIC"]);
    Run::of(&program, 2).before(&slow).passes();
}

#[test]
fn many_collectives_under_way_cost_what_they_cost_alone() {
    Run::of(&compile("outstanding.c", &[]), 4).passes();
}

#[test]
fn requests_may_be_freed_while_their_collectives_are_under_way() {
    Run::of(&compile("early.c", &[]), 3).passes();
}

#[test]
fn a_refused_send_leaves_no_receive_behind() {
    Run::of(&compile("refused.c", &[]), 2).passes();
}

#[test]
fn the_mpi_reports_wrong_arguments_and_survives_our_errors() {
    let program = compile("errors.c", &[]);
    let classes = |run: Run| {
        let text = run.passes().text;
        text.lines().filter(|line| line.starts_with("class")).map(str::to_owned).collect::<Vec<_>>()
    };
    let alone = classes(Run::of(&program, 2).alone());
    assert_eq!(alone.len(), 9);
    assert_eq!(classes(Run::of(&program, 2)), alone);
    Run::of(&program, 2).with("HAN_MPI_AFTER", "4").argument("handle").passes();
    for way in ["0", "1", "2", "3", "4"] {
        let text = Run::of(&program, 2).argument(way).passes().text;
        assert!(text.contains(&format!("{way}: an error of its own request")), "{text}");
    }
    let text = Run::of(&program, 2).with("HAN_MPI_AFTER", "4").argument("disagree").passes().text;
    let (max, sum) = ("allreduce(count 1, i32, max)", "allreduce(count 1, i32, sum)");
    assert!(text.contains("mismatched collective") && text.contains(max) && text.contains(sum), "{text}");
}

#[test]
fn an_error_of_the_mpis_hides_none_of_a_collective() {
    Run::of(&compile("beside.c", &[]), 2).passes();
}

#[test]
fn wrong_calls_of_one_rank_change_nothing_for_others() {
    let program = compile("onerank.c", &[]);
    for ranks in [2, 3] {
        let report = Run::of(&program, ranks).with("HAN_MPI_AFTER", "4").with("HAN_MPI_REPORT", "1").passes();
        assert_eq!(report.line("allreduce").taken, 3 * 6 * ranks as u64, "{}", report.text);
    }
}

#[test]
fn a_root_may_reduce_into_its_input_where_the_mpi_does_not_mind() {
    let program = compile("aliased.c", &[]);
    for ranks in [2, 3] {
        let run = Run::of(&program, ranks).with("MPIR_CVAR_COLL_ALIAS_CHECK", "0").with("HAN_MPI_REPORT", "1");
        let report = run.passes();
        assert_eq!(report.line("reduce").taken, (3 * ranks * ranks) as u64, "{}", report.text);
    }
}

#[test]
fn a_communicator_hears_of_messages_that_are_longer_than_their_receives() {
    Run::of(&compile("truncated.c", &[]), 2).passes();
}

#[test]
fn the_handler_that_a_freed_communicator_had_hears_of_its_failures() {
    Run::of(&compile("freed.c", &[]), 3).with("HAN_MPI_AFTER", "4").passes();
}

#[test]
fn exceptions_of_error_handlers_reach_the_program() {
    let program = compile_with("mpicxx.mpich", "c/exceptions.cpp", &[]);
    for ranks in [2, 3] {
        Run::of(&program, ranks).passes();
    }
}

#[test]
fn elements_that_cannot_be_packed_are_an_error() {
    let behind = compile("nopack.c", &["-shared", "-fPIC"]);
    let program = compile("unpackable.c", &[]);
    for ranks in [2, 3] {
        Run::of(&program, ranks).before(&behind).passes();
    }
}

#[test]
fn rules_leave_calls_to_the_mpi() {
    let program = compile("collectives.c", &[]);
    let rules = "bcast, reduce:bytes=100.., barrier:ranks=3.., allreduce:mpi=intel";
    let report = Run::of(&program, 2).with("HAN_MPI_PASS", rules).with("HAN_MPI_REPORT", "1").passes();
    let taken = |line: &str| report.line(line).taken;
    assert_eq!((taken("barrier"), taken("bcast"), taken("reduce")), (2, 0, 4), "{}", report.text);
    assert!(taken("allreduce") > 28, "{}", report.text);
    assert_eq!(report.line("reduce").reasons, "rule: 10");
}

#[test]
fn non_blocking_calls_count_and_make_no_communicator() {
    let program = compile("nonblocking.c", &[]);
    let run = |after: &str| Run::of(&program, 3).with("HAN_MPI_AFTER", after).with("HAN_MPI_REPORT", "1");
    let report = run("0").passes();
    assert_eq!(report.line("allreduce").taken, 60, "{}", report.text);
    let report = run("4").passes();
    assert_eq!(report.line("allreduce").reasons, "new communicator: 60");
    let report = run("4").argument("barrier").passes();
    assert_eq!(report.line("barrier").taken, 3, "{}", report.text);
}

#[test]
fn wrong_settings_end_the_program_with_the_valid_ones() {
    let program = compile("errors.c", &[]);
    for (name, value, expected) in [
        ("HAN_MPI_PASS", "bcats", "all, barrier, bcast, reduce, allreduce"),
        ("HAN_MPI_AFTER", "soon", "HAN_MPI_AFTER=soon"),
        ("HAN_MPI_REPORT", "yes", "expected 0 or 1"),
        ("HAN_MPI_GPU", "1", "HAN_MPI_GPU=1: expected 0"),
        ("HAN_MPI", "no", "HAN_MPI=no: expected 0 or 1"),
        ("HAN_SET", "chunk=1", "chunk_bytes"),
    ] {
        let text = Run::of(&program, 2).with(name, value).fails();
        assert!(text.contains(expected), "{name}={value}: {text}");
    }
}

#[test]
fn switched_off_it_does_nothing() {
    let program = compile("collectives.c", &[]);
    let text = Run::of(&program, 2).with("HAN_MPI", "0").with("HAN_MPI_REPORT", "1").passes().text;
    assert!(!text.contains("han:"), "{text}");
}

#[test]
fn switched_off_on_one_rank_all_ranks_go_on_without_it() {
    let program = compile("collectives.c", &[]);
    let text = Run::of(&program, 3).first("HAN_MPI", "0").with("HAN_MPI_REPORT", "1").passes().text;
    assert!(text.contains("left to the MPI: rank 0: HAN_MPI=0") && text.contains("no report: all"), "{text}");
}

#[test]
fn ranks_without_the_library_are_named() {
    let program = compile("collectives.c", &[]);
    let run = Run::of(&program, 2).partly().with("HAN_WATCHDOG", "2").with("MPIEXEC_TIMEOUT", "15");
    let text = run.fails();
    assert!(text.contains("rank 0 has waited") && text.contains("this library: rank 1 (pid "), "{text}");
}

#[test]
fn programs_with_memory_of_gpus_are_left_to_the_mpi() {
    let program = compile("collectives.c", &[]);
    let cuda = compile("libcuda.so.c", &["-shared", "-fPIC"]);
    let run = |library: &Path| Run::of(&program, 2).before(library).with("HAN_MPI_REPORT", "1");
    for name in ["libcuda.so", "libhsa-runtime64.so", "libze_loader.so"] {
        let library = cuda.with_file_name(format!("{name}.1"));
        std::fs::copy(&cuda, &library).unwrap();
        let text = run(&library).passes().text;
        assert!(text.contains(&format!("rank 0: {name} is loaded")) && text.contains("no report: all"), "{text}");
    }
    let report = run(&cuda).with("HAN_MPI_GPU", "0").passes();
    assert!(report.line("bcast").taken > 0, "{}", report.text);
}

#[test]
fn where_there_is_no_report_a_line_says_so() {
    let program = compile("collectives.c", &[]);
    let text = Run::of(&program, 1).with("HAN_MPI_REPORT", "1").passes().text;
    assert!(text.contains("no report: one rank has nobody"), "{text}");
    let program = compile("sessions.c", &[]);
    let text = Run::of(&program, 1).with("HAN_MPI_REPORT", "1").passes().text;
    assert!(text.contains("no report: a program of MPI sessions alone"), "{text}");
    let text = Run::of(&program, 1).argument("then").with("HAN_MPI_REPORT", "1").passes().text;
    assert!(text.contains("no report: one rank") && !text.contains("sessions alone"), "{text}");
}

#[test]
fn ranks_whose_mpi_does_not_understand_the_launcher_are_told() {
    let program = compile("collectives.c", &[]);
    let script = program.with_extension("sh");
    std::fs::write(&script, format!("#!/bin/sh\nunset PMI_FD\nPMI_SIZE=4 exec {}\n", program.display())).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = Run::of(&script, 1).passes().text;
    assert!(text.contains("4 processes were started, and each is alone in its MPI_COMM_WORLD"), "{text}");
}

#[test]
fn fortran_programs_come_here_too() {
    let program = compile_with("mpifort.mpich", "fortran/collectives.f90", &[]);
    let report = Run::of(&program, 3).with("HAN_MPI_REPORT", "1").passes();
    let taken = ["barrier", "bcast", "reduce", "allreduce"].map(|line| report.line(line).taken);
    assert_eq!(taken, [3, 3, 3, 12], "{}", report.text);
}
