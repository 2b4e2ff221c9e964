//! The choice of the instruction set. One test: the choice is made once for the process.

use reduce_kernels::{Datatype, Isa, IsaError, Operator, is_defined, kernel, override_isa, table};

#[test]
fn an_override_holds_for_the_process() {
    assert!(Isa::Scalar.is_available());
    assert!(Isa::best().is_available());
    let missing = if cfg!(target_arch = "aarch64") { Isa::Avx2 } else { Isa::Neon };
    let error = override_isa(missing).expect_err("another architecture");
    assert_eq!(error, IsaError::Unavailable { asked: missing });
    let expected = format!("this CPU has no {missing}; the best that it has is {}", Isa::best());
    assert_eq!(error.to_string(), expected);

    override_isa(Isa::Scalar).expect("nothing has been chosen yet");
    override_isa(Isa::Scalar).expect("the same again");
    let chosen = kernel(Datatype::Float, Operator::Sum).map(|kernel| kernel.isa);
    assert_eq!(chosen, Some(Isa::Scalar));
    if Isa::best() != Isa::Scalar {
        let error = override_isa(Isa::best()).expect_err("chosen already");
        let expected = IsaError::AlreadyChosen { asked: Isa::best(), chosen: Isa::Scalar };
        assert_eq!(error, expected);
    }

    let listed: Vec<_> = table().collect();
    let defined = Datatype::ALL.into_iter().flat_map(|datatype| {
        Operator::ALL
            .into_iter()
            .filter(move |&operator| is_defined(datatype, operator))
            .map(move |operator| (datatype, operator, Isa::Scalar))
    });
    assert!(listed.into_iter().eq(defined), "the table lists every defined pair once");
}
