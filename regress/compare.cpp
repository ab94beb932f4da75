#include "regress/compare.h"

#include <algorithm>

#include "moe/base/check.h"
#include "moe/base/exit_code.h"
#include "regress/compare_report.h"

namespace moe::regress {
namespace {

bool has(const Comparison& c, Verdict verdict) {
  return std::ranges::find(c.cases, verdict, &ComparedCase::verdict) != c.cases.end();
}

}  // namespace

int run_compare(const CompareOptions& o) {
  CaseFilter filter(o.filter);
  const NoiseFloors floors(o.floor);
  const Side base = read_side(o.base), head = read_side(o.head);
  const Comparison c = compare_sides(base, head, filter, o.by, floors);
  if (o.json)
    fmt::print("{}\n", document_text(to_json(base, head, c)));
  else
    fmt::print("{}", comparison_text(base, head, c, {.all = o.all, .markdown = o.markdown}));
  if (c.cases.empty() && c.broken.empty())
    bad_input(
        "compare: found nothing that {} and {} can be compared by ({} refused, {} only in BASE, {} only in HEAD), "
        "expected a case of the same question, machine and backend in both",
        o.base, o.head, c.refused.size(), c.only_in_base.size(), c.only_in_head.size());
  if (!c.broken.empty() || has(c, Verdict::slower)) return kRegression;
  return o.strict && has(c, Verdict::ambiguous) ? kDoubtful : kOk;
}

}  // namespace moe::regress
