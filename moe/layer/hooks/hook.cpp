#include "moe/layer/hooks/hook.h"

#include <array>

#include "moe/base/registry.h"
#include "moe/shape/parts.h"

namespace moe {
namespace {

constexpr std::array kHooks{HookRow{"none", [](Math&) { return std::unique_ptr<Hook>(); }},
                            HookRow{"bf16", make_bf16_hook}};
static_assert(same_names(kHooks, kHookParts), "a hook has a row here and one in moe/shape/parts.h");

Registry<HookRow>& hooks() {
  static Registry<HookRow> rows(kHooks);
  return rows;
}

}  // namespace

void register_hook(const Part& part, HookRow row) {
  row.name = part.name;
  hook_parts().add(part, "hook");
  hooks().add(row, "hook");
}

std::unique_ptr<Hook> make_hook(std::string_view name, Math& math) {
  return find_named(hooks(), name, "hook").make(math);
}

std::vector<std::string_view> hook_names() { return row_names(hooks()); }

namespace {

class Bf16Hook final : public Hook {
 public:
  explicit Bf16Hook(Math& math) : math_(math) {}
  void before_dispatch(Phase, TensorView rows, TensorView wire) override { math_.convert(rows, wire); }
  void after_dispatch(Phase, TensorView wire, TensorView rows) override { math_.convert(wire, rows); }
  void before_combine(Phase, TensorView rows, TensorView wire) override { math_.convert(rows, wire); }
  void after_combine(Phase, TensorView wire, TensorView rows) override { math_.convert(wire, rows); }
  // Half of the last of 8 bits; 16-bit elements are sent as they are.
  double relative_error(DType dtype) const override { return bytes_of(dtype) > 2 ? 0x1p-8 : 0; }

 private:
  Math& math_;
};

}  // namespace

std::unique_ptr<Hook> make_bf16_hook(Math& math) { return std::make_unique<Bf16Hook>(math); }

}  // namespace moe
