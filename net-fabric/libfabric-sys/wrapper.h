/* What the bindings are made of. */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

/* Version 2 puts one of the two fields into a union, to which bindgen gives another name. */
static inline void han_fi_set_progress(struct fi_domain_attr *attributes, enum fi_progress progress)
{
	attributes->control_progress = progress;
	attributes->data_progress = progress;
}
