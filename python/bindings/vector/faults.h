// Fault policies in, fault records and the workers' health out.
#pragma once

#include <nanobind/nanobind.h>

#include "shoal/vector/vector_env.h"

namespace shoal::python {

/// `policy`: what shoal.vector.faults.FaultPolicy.settings() returns, seconds for times.
vector::FaultPolicy fault_policy(const nanobind::dict& policy);

/// A shoal.Fault. Also for the exceptions that carry some.
nanobind::object fault_to_python(const vector::FaultRecord& fault);

/// Of the last reset or step: a list of (row, shoal.Fault).
nanobind::list faults(const vector::VectorEnv& envs);

/// A list of dicts, one a worker.
nanobind::list health(const vector::VectorEnv& envs);

}  // namespace shoal::python
