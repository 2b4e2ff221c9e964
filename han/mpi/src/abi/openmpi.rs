//! Open MPI's constants: its predefined objects are variables of the library, so their names are all that is known
//! before it is loaded.

use std::ffi::CStr;
use std::ptr;

use han::Operator;

use super::{Abi, Flavour, Kind, Status, addresses};
use crate::real::variable;

pub(super) fn abi() -> Abi {
    let named = |name| variable(name).unwrap_or(0);
    Abi {
        flavour: Flavour::OpenMpi,
        comm_world: named(c"ompi_mpi_comm_world"),
        comm_self: named(c"ompi_mpi_comm_self"),
        comm_null: named(c"ompi_mpi_comm_null"),
        datatype_null: named(c"ompi_mpi_datatype_null"),
        request_null: named(c"ompi_request_null"),
        op_null: named(c"ompi_mpi_op_null"),
        errors_return: named(c"ompi_mpi_errors_return"),
        errors_are_fatal: named(c"ompi_mpi_errors_are_fatal"),
        byte: named(c"ompi_mpi_byte"),
        in_place: 1,
        thread_multiple: 3,
        err_other: 16,
        err_in_status: 18,
        status: Status { bytes: 24, error_at: 8, ignore: 0 },
        combiner_named: 0,
        combiners_f90: 14..=16,
        combiner_value_index: None,
        datatypes: addresses(DATATYPES),
        operators: addresses(OPERATORS),
        no_operators: [c"ompi_mpi_op_replace", c"ompi_mpi_op_no_op"].into_iter().filter_map(variable).collect(),
    }
}

/// What the library has made of `--mca mpi_param_check`. MPI is initialised.
pub(super) fn checks_arguments() -> bool {
    let place = variable(c"ompi_mpi_param_check").map(ptr::with_exposed_provenance::<u8>);
    // SAFETY: the library's variable is a truth value.
    place.is_some_and(|place| unsafe { place.read() } != 0)
}

const OPERATORS: &[(&CStr, Operator)] = &[
    (c"ompi_mpi_op_max", Operator::Max),
    (c"ompi_mpi_op_min", Operator::Min),
    (c"ompi_mpi_op_sum", Operator::Sum),
    (c"ompi_mpi_op_prod", Operator::Prod),
    (c"ompi_mpi_op_land", Operator::Land),
    (c"ompi_mpi_op_band", Operator::Band),
    (c"ompi_mpi_op_lor", Operator::Lor),
    (c"ompi_mpi_op_bor", Operator::Bor),
    (c"ompi_mpi_op_lxor", Operator::Lxor),
    (c"ompi_mpi_op_bxor", Operator::Bxor),
    (c"ompi_mpi_op_minloc", Operator::Minloc),
    (c"ompi_mpi_op_maxloc", Operator::Maxloc),
];

const DATATYPES: &[(&CStr, Kind)] = &[
    (c"ompi_mpi_byte", Kind::Byte),
    (c"ompi_mpi_packed", Kind::Opaque),
    (c"ompi_mpi_char", Kind::Opaque),
    (c"ompi_mpi_wchar", Kind::Opaque),
    (c"ompi_mpi_signed_char", Kind::Signed),
    (c"ompi_mpi_unsigned_char", Kind::Unsigned),
    (c"ompi_mpi_short", Kind::Signed),
    (c"ompi_mpi_unsigned_short", Kind::Unsigned),
    (c"ompi_mpi_int", Kind::Signed),
    (c"ompi_mpi_unsigned", Kind::Unsigned),
    (c"ompi_mpi_long", Kind::Signed),
    (c"ompi_mpi_unsigned_long", Kind::Unsigned),
    (c"ompi_mpi_long_long_int", Kind::Signed),
    (c"ompi_mpi_unsigned_long_long", Kind::Unsigned),
    (c"ompi_mpi_float", Kind::Float),
    (c"ompi_mpi_double", Kind::Float),
    (c"ompi_mpi_long_double", Kind::LongDouble),
    (c"ompi_mpi_float_int", Kind::FloatInt),
    (c"ompi_mpi_double_int", Kind::DoubleInt),
    (c"ompi_mpi_long_int", Kind::LongInt),
    (c"ompi_mpi_short_int", Kind::ShortInt),
    (c"ompi_mpi_2int", Kind::TwoInt),
    (c"ompi_mpi_int8_t", Kind::Signed),
    (c"ompi_mpi_uint8_t", Kind::Unsigned),
    (c"ompi_mpi_int16_t", Kind::Signed),
    (c"ompi_mpi_uint16_t", Kind::Unsigned),
    (c"ompi_mpi_int32_t", Kind::Signed),
    (c"ompi_mpi_uint32_t", Kind::Unsigned),
    (c"ompi_mpi_int64_t", Kind::Signed),
    (c"ompi_mpi_uint64_t", Kind::Unsigned),
    (c"ompi_mpi_aint", Kind::Signed),
    (c"ompi_mpi_offset", Kind::Signed),
    (c"ompi_mpi_count", Kind::Signed),
    (c"ompi_mpi_c_bool", Kind::Bool),
    (c"ompi_mpi_c_float_complex", Kind::Complex),
    (c"ompi_mpi_c_double_complex", Kind::Complex),
    (c"ompi_mpi_cxx_bool", Kind::Bool),
    (c"ompi_mpi_cxx_cplex", Kind::Complex),
    (c"ompi_mpi_cxx_dblcplex", Kind::Complex),
    (c"ompi_mpi_character", Kind::Opaque),
    (c"ompi_mpi_logical", Kind::Logical),
    (c"ompi_mpi_integer", Kind::Signed),
    (c"ompi_mpi_integer1", Kind::Signed),
    (c"ompi_mpi_integer2", Kind::Signed),
    (c"ompi_mpi_integer4", Kind::Signed),
    (c"ompi_mpi_integer8", Kind::Signed),
    (c"ompi_mpi_real", Kind::Float),
    (c"ompi_mpi_real2", Kind::Float),
    (c"ompi_mpi_real4", Kind::Float),
    (c"ompi_mpi_real8", Kind::Float),
    (c"ompi_mpi_dblprec", Kind::Float),
    (c"ompi_mpi_cplex", Kind::Complex),
    (c"ompi_mpi_complex8", Kind::Complex),
    (c"ompi_mpi_complex16", Kind::Complex),
    (c"ompi_mpi_dblcplex", Kind::Complex),
    (c"ompi_mpi_2real", Kind::TwoReal),
    (c"ompi_mpi_2dblprec", Kind::TwoReal),
    (c"ompi_mpi_2integer", Kind::TwoInt),
];
