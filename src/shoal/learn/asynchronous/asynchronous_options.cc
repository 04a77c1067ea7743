#include "shoal/learn/asynchronous/asynchronous_options.h"

#include <cmath>

#include "shoal/learn/config/option.h"

namespace shoal::learn {

void validate(const AsynchronousOptions& o) {
  const auto weight = [](double bar) { return std::isfinite(bar) && bar > 0; };
  check_option(weight(o.rho_bar), "rho_bar", o.rho_bar, "greater than 0");
  check_option(weight(o.c_bar), "c_bar", o.c_bar, "greater than 0");
  check_option(o.max_lag >= 1 && o.max_lag <= 1000, "max_lag", o.max_lag, "from 1 to 1000");
}

}  // namespace shoal::learn
