#pragma once
// Measures a site's ops into records: the first part of `microbench` and of `tune`.
#include <functional>
#include <vector>

#include "moe/cost/fit.h"
#include "moe/measure/op_bench.h"
#include "moe/record/writer.h"

namespace moe {

struct OpRequest {
  OpSettings settings;
  OpSizes sizes;
  std::vector<std::string> modules = {};  // of the registries, on a site that is not emulated
};

/// What a case leaves: wrong results without samples.
CaseRecord record_of(const OpCase& c, const OpResult& result, const Site& site);

/// Every case of the site and of `modules` (module_cases), those that `writer` has already taken from there; of a site
/// that is to be measured also how lanes slow each other (lane_bench.h) and what handing over between them costs. A
/// wrong result is a record with status `wrong` and no samples. Every process of the site calls it, all get the same;
/// `writer` and `progress`, which is told the share of the work done, in [0, 1], are of the one that leads.
std::vector<CaseRecord> measure_ops(const Site& site, RecordWriter& writer, const OpRequest& request,
                                    const std::function<void(double share)>& progress);

/// Measures the site and fits it.
FittedProfile measure_and_fit(const Site& site, RecordWriter& writer, const OpRequest& request,
                              const std::function<void(double share)>& progress);

}  // namespace moe
