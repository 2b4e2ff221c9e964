//! The constants of the MPICH ABI, which MPICH, Intel MPI and others have in common.

use han::Operator;

use super::{Abi, Flavour, Kind, Status};

pub(super) fn abi() -> Abi {
    Abi {
        flavour: Flavour::Mpich,
        comm_world: 0x4400_0000,
        comm_self: 0x4400_0001,
        comm_null: 0x0400_0000,
        datatype_null: 0x0c00_0000,
        request_null: 0x2c00_0000,
        op_null: 0x1800_0000,
        errors_return: 0x5400_0001,
        errors_are_fatal: 0x5400_0000,
        byte: 0x4c00_010d,
        in_place: usize::MAX,
        thread_multiple: 3,
        err_other: 15,
        err_in_status: 17,
        status: Status { bytes: 20, error_at: 16, ignore: 1 },
        combiner_named: 1,
        combiners_f90: 15..=17,
        combiner_value_index: Some(20),
        datatypes: DATATYPES.to_vec(),
        operators: OPERATORS.to_vec(),
        no_operators: Vec::new(),
    }
}

const OPERATORS: &[(usize, Operator)] = &[
    (0x5800_0001, Operator::Max),
    (0x5800_0002, Operator::Min),
    (0x5800_0003, Operator::Sum),
    (0x5800_0004, Operator::Prod),
    (0x5800_0005, Operator::Land),
    (0x5800_0006, Operator::Band),
    (0x5800_0007, Operator::Lor),
    (0x5800_0008, Operator::Bor),
    (0x5800_0009, Operator::Lxor),
    (0x5800_000a, Operator::Bxor),
    (0x5800_000b, Operator::Minloc),
    (0x5800_000c, Operator::Maxloc),
];

/// Bits 8 to 15 of a number are the size in bytes; those of structures have none.
const DATATYPES: &[(usize, Kind)] = &[
    (0x4c00_0101, Kind::Opaque),     // MPI_CHAR
    (0x4c00_0102, Kind::Unsigned),   // MPI_UNSIGNED_CHAR
    (0x4c00_0203, Kind::Signed),     // MPI_SHORT
    (0x4c00_0204, Kind::Unsigned),   // MPI_UNSIGNED_SHORT
    (0x4c00_0405, Kind::Signed),     // MPI_INT
    (0x4c00_0406, Kind::Unsigned),   // MPI_UNSIGNED
    (0x4c00_0807, Kind::Signed),     // MPI_LONG
    (0x4c00_0808, Kind::Unsigned),   // MPI_UNSIGNED_LONG
    (0x4c00_0809, Kind::Signed),     // MPI_LONG_LONG
    (0x4c00_040a, Kind::Float),      // MPI_FLOAT
    (0x4c00_080b, Kind::Float),      // MPI_DOUBLE
    (0x4c00_100c, Kind::LongDouble), // MPI_LONG_DOUBLE
    (0x4c00_010d, Kind::Byte),       // MPI_BYTE
    (0x4c00_040e, Kind::Opaque),     // MPI_WCHAR
    (0x4c00_010f, Kind::Opaque),     // MPI_PACKED
    (0x4c00_0816, Kind::TwoInt),     // MPI_2INT
    (0x4c00_0118, Kind::Signed),     // MPI_SIGNED_CHAR
    (0x4c00_0819, Kind::Unsigned),   // MPI_UNSIGNED_LONG_LONG
    (0x4c00_011a, Kind::Opaque),     // MPI_CHARACTER
    (0x4c00_041b, Kind::Signed),     // MPI_INTEGER
    (0x4c00_041c, Kind::Float),      // MPI_REAL
    (0x4c00_041d, Kind::Logical),    // MPI_LOGICAL
    (0x4c00_081e, Kind::Complex),    // MPI_COMPLEX
    (0x4c00_081f, Kind::Float),      // MPI_DOUBLE_PRECISION
    (0x4c00_0820, Kind::TwoInt),     // MPI_2INTEGER
    (0x4c00_0821, Kind::TwoReal),    // MPI_2REAL
    (0x4c00_1022, Kind::Complex),    // MPI_DOUBLE_COMPLEX
    (0x4c00_1023, Kind::TwoReal),    // MPI_2DOUBLE_PRECISION
    (0x4c00_0226, Kind::Float),      // MPI_REAL2
    (0x4c00_0427, Kind::Float),      // MPI_REAL4
    (0x4c00_0828, Kind::Complex),    // MPI_COMPLEX8
    (0x4c00_0829, Kind::Float),      // MPI_REAL8
    (0x4c00_102a, Kind::Complex),    // MPI_COMPLEX16
    (0x4c00_012d, Kind::Signed),     // MPI_INTEGER1
    (0x4c00_022f, Kind::Signed),     // MPI_INTEGER2
    (0x4c00_0430, Kind::Signed),     // MPI_INTEGER4
    (0x4c00_0831, Kind::Signed),     // MPI_INTEGER8
    (0x4c00_0133, Kind::Bool),       // MPI_CXX_BOOL
    (0x4c00_0834, Kind::Complex),    // MPI_CXX_FLOAT_COMPLEX
    (0x4c00_1035, Kind::Complex),    // MPI_CXX_DOUBLE_COMPLEX
    (0x4c00_0137, Kind::Signed),     // MPI_INT8_T
    (0x4c00_0238, Kind::Signed),     // MPI_INT16_T
    (0x4c00_0439, Kind::Signed),     // MPI_INT32_T
    (0x4c00_083a, Kind::Signed),     // MPI_INT64_T
    (0x4c00_013b, Kind::Unsigned),   // MPI_UINT8_T
    (0x4c00_023c, Kind::Unsigned),   // MPI_UINT16_T
    (0x4c00_043d, Kind::Unsigned),   // MPI_UINT32_T
    (0x4c00_083e, Kind::Unsigned),   // MPI_UINT64_T
    (0x4c00_013f, Kind::Bool),       // MPI_C_BOOL
    (0x4c00_0840, Kind::Complex),    // MPI_C_FLOAT_COMPLEX
    (0x4c00_1041, Kind::Complex),    // MPI_C_DOUBLE_COMPLEX
    (0x4c00_0843, Kind::Signed),     // MPI_AINT
    (0x4c00_0844, Kind::Signed),     // MPI_OFFSET
    (0x4c00_0845, Kind::Signed),     // MPI_COUNT
    (0x4c00_0246, Kind::Float),      // MPIX_C_FLOAT16
    (0x4c00_024c, Kind::Bfloat),     // MPIX_BFLOAT16
    (0x8c00_0000, Kind::FloatInt),   // MPI_FLOAT_INT
    (0x8c00_0001, Kind::DoubleInt),  // MPI_DOUBLE_INT
    (0x8c00_0002, Kind::LongInt),    // MPI_LONG_INT
    (0x8c00_0003, Kind::ShortInt),   // MPI_SHORT_INT
];
