#include "commands/shared/layout_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/ranges.h>
#include <map>
#include <sstream>

#include "commands/shared/yaml.h"
#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/files.h"

namespace moe::commands {
namespace {

constexpr std::string_view kGroupSize = "parallel_size", kModules = "recompute_modules",
                           kSequence = "sequence_parallel",
                           kEmbeddingAsLayer = "account_for_embedding_in_pipeline_split",
                           kLossAsLayer = "account_for_loss_in_pipeline_split";

/// A setting of a file. A setting without a value has no text.
struct Entry {
  std::string key, text, where;
};

// Returns a value as one word; "[1,2]" for a list. Empty for null and for a table.
std::string word_of(const ConfigValue& value) {
  std::vector<std::string> items;
  switch (value.kind) {
    case ConfigKind::boolean:
      return value.boolean ? "true" : "false";
    case ConfigKind::integer:
      return std::to_string(value.integer);
    case ConfigKind::text:
      return value.text == "auto" ? "" : value.text;
    case ConfigKind::real:
      return describe(value);
    case ConfigKind::list:
      for (const ConfigValue& item : value.items) items.push_back(word_of(item));
      return fmt::format("[{}]", fmt::join(items, ","));
    default:
      return "";
  }
}

// Adds the settings below a table, unless the table has "enabled: false".
void add_entries(const ConfigFile& file, const ConfigValue& table, const std::string& prefix,
                 std::vector<Entry>& entries) {
  if (const ConfigValue* enabled = table.find("enabled"); enabled != nullptr && word_of(*enabled) == "false") return;
  for (const auto& [key, value] : table.entries) {
    const std::string name = prefix + key;
    const std::string line = value.line > 0 ? fmt::format("{}:{}", file.path, value.line) : file.path;
    if (value.kind == ConfigKind::table)
      add_entries(file, value, name + '.', entries);
    else
      entries.push_back({name, word_of(value), fmt::format("{}: {}", line, name)});
  }
}

// Returns the table of that key; null if there is none.
const ConfigValue* table_of(const ConfigFile& file, std::string_view key) {
  const ConfigValue* found = file.root.find(key);
  return found != nullptr && found->kind == ConfigKind::table ? found : nullptr;
}

/// The variables that a shell script has set so far, as far as their values are single words.
class ShellVariables {
 public:
  // Reads the assignments at the beginning of a line: `TP=2`, `export TP=${TP:-2} PP="4"`.
  void read(std::string_view line) {
    line = trimmed(line);
    for (const std::string_view keyword : {"export ", "local ", "readonly "})
      if (line.starts_with(keyword)) line = trimmed(line.substr(keyword.size()));
    while (!line.empty()) {
      const size_t equals = line.find_first_not_of(kNameCharacters);
      if (equals == 0 || equals == std::string_view::npos || line[equals] != '=') return;
      const std::string name(line.substr(0, equals));
      line.remove_prefix(equals + 1);
      const bool quoted = line.starts_with('"') || line.starts_with('\'');
      const size_t end = quoted ? line.find(line.front(), 1) : line.find_first_of(" \t;");
      const std::string_view value = line.substr(quoted ? 1 : 0, end == line.npos ? end : end - (quoted ? 1 : 0));
      if (!value.empty() && value.find_first_of(" \t(") == line.npos)
        values_[name] = resolved(std::string(value));
      else
        values_.erase(name);
      if (end == line.npos) return;
      line = trimmed(line.substr(end + 1));
    }
  }

  // Replaces $NAME, ${NAME} and ${NAME:-DEFAULT} in a word. A variable that is not set stays as it is.
  std::string resolved(const std::string& word) const {
    const size_t dollar = word.find('$');
    if (dollar == std::string::npos || dollar + 1 == word.size()) return word;
    const bool braces = word[dollar + 1] == '{';
    const size_t begin = dollar + (braces ? 2 : 1);
    const size_t name_end = std::min(word.find_first_not_of(kNameCharacters, begin), word.size());
    size_t end = name_end;
    std::string otherwise;
    if (braces) {
      end = word.find('}', name_end);
      if (end == std::string::npos) return word;
      const std::string behind = word.substr(name_end, end - name_end);
      for (const std::string_view mark : {":-", "-"})
        if (otherwise.empty() && behind.starts_with(mark)) otherwise = behind.substr(mark.size());
      ++end;
      if (!behind.empty() && otherwise.empty()) return word.substr(0, end) + resolved(word.substr(end));
    }
    const auto value = values_.find(word.substr(begin, name_end - begin));
    if (value != values_.end()) otherwise = value->second;
    return word.substr(0, dollar) + (otherwise.empty() ? word.substr(dollar, end - dollar) : otherwise) +
           resolved(word.substr(end));
  }

 private:
  static constexpr std::string_view kNameCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
  static std::string_view trimmed(std::string_view text) {
    return text.substr(std::min(text.find_first_not_of(" \t;"), text.size()));
  }
  std::map<std::string, std::string, std::less<>> values_;
};

// Returns the arguments of a command line; a switch has the value true, and a list has commas.
std::vector<Entry> arguments_of(const std::string& text, const std::string& path) {
  std::map<std::string, Entry, std::less<>> arguments;
  std::istringstream lines(text);
  std::string name;
  ShellVariables variables;
  int number = 0;
  constexpr std::array<std::string_view, 4> kExchanges{"p2p", "all_gather", "a2a", "a2a+p2p"};
  const auto continues_list = [&](const std::string& word) {
    return name == "--recompute-modules" ||
           (name == "--cp-comm-type" && std::ranges::find(kExchanges, word) != kExchanges.end());
  };
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line.resize(std::min(line.find('#'), line.size()));
    variables.read(line);
    std::ranges::replace_if(
        line, [](char c) { return std::string_view("\\\"'()").find(c) != std::string_view::npos; }, ' ');
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      word = variables.resolved(word);
      if (word.starts_with("--")) {
        const size_t equals = word.find('=');
        name = word.substr(0, equals);
        arguments[name] = {name, equals == std::string::npos ? "true" : word.substr(equals + 1),
                           fmt::format("{}:{}: {}", path, number, name)};
      } else if (!name.empty() && arguments[name].text == "true") {
        arguments[name].text = word;
      } else if (continues_list(word)) {
        arguments[name].text += ',' + word;
      }
    }
  }
  std::vector<Entry> entries;
  for (auto& [key, entry] : arguments) entries.push_back(std::move(entry));
  return entries;
}

bool is_yaml(const std::string& path) {
  const std::string name = without_gz_suffix(path);
  return name.ends_with(".yaml") || name.ends_with(".yml");
}

/// Reads the settings of one file into a layout.
class Reader {
 public:
  explicit Reader(const std::string& path) {
    layout_.path = path;
    const std::string text = text_of_file(path, "a training's settings");
    const size_t begin = text.find_first_not_of(" \t\r\n");
    const bool is_json = begin != std::string::npos && text[begin] == '{';
    const bool is_toml = without_gz_suffix(path).ends_with(".toml");
    has_arguments_ = !is_yaml(path) && !is_json && !is_toml;
    if (has_arguments_) {
      entries_ = arguments_of(text, path);
    } else {
      const ConfigFile file = is_yaml(path) ? parse_yaml(text, path)
                              : is_toml     ? parse_toml(text, path)
                                            : parse_json(text, path);
      const ConfigValue* arguments = table_of(file, "MODEL_ARGS");  // Megatron-LM's functional tests have it
      has_arguments_ = arguments != nullptr;
      const ConfigValue* config = file.root.find("call") != nullptr ? table_of(file, "config") : nullptr;  // export's
      add_entries(file, has_arguments_ ? *arguments : config != nullptr ? *config : file.root, "", entries_);
    }
  }

  LayoutFile read() && {
    choose_format();
    drop_words_behind_switches();
    for (const SettingName& name : layout_.format->names)
      if (const Entry* entry = entry_of(name.theirs); entry != nullptr && !entry->text.empty())
        add_setting(name, *entry);
    set_virtual_stages();
    set_stage_layers();
    set_batches();
    set_pipeline_batch();
    for (const SettingDefault& held : layout_.format->defaults)
      if (layout_.find(held.flag) == nullptr && (held.flag != "--cp-exchange" || has_usual_exchange()))
        layout_.defaults.push_back(held);
    for (const Entry& entry : entries_)
      if (!entry.text.empty()) check(entry);
    note_sequence();
    note_sizes();
    return std::move(layout_);
  }

 private:
  const Entry* entry_of(std::string_view key) const {
    const auto found = std::ranges::find(entries_, key, &Entry::key);
    return found == entries_.end() ? nullptr : &*found;
  }

  [[noreturn]] static void fail(const Entry& entry, std::string_view expected) {
    const bool is_variable = entry.text.find('$') != std::string::npos;
    bad_input("{}: found {}{}, expected {}", entry.where, quoted_text(entry.text),
              is_variable ? ", a variable that this file does not set" : "", expected);
  }

  void choose_format() {
    long most = 0;
    std::vector<std::string> examples;
    for (const Framework& framework : frameworks())
      for (const SettingsFormat& format : framework.formats) {
        if (format.is_arguments != has_arguments_) continue;
        const long named = std::ranges::count_if(
            format.names, [&](const SettingName& name) { return entry_of(name.theirs) != nullptr; });
        examples.push_back(fmt::format("{} of {}", format.names.front().theirs, format.name));
        if (named <= most) continue;
        most = named;
        layout_.framework = &framework;
        layout_.format = &format;
      }
    require<BadInput>(most > 0, "{}: found no setting of groups or micro-batches, expected such as {}", layout_.path,
                      fmt::join(examples, ", "));
  }

  // A switch takes no value: the word after it belongs to the script ("torchrun").
  void drop_words_behind_switches() {
    if (!has_arguments_) return;
    for (Entry& entry : entries_)
      if (entry.text != "false" && is_switch(entry)) entry.text = "true";
  }

  bool is_switch(const Entry& entry) const {
    const std::string name = plain_name(entry);
    return name == kSequence ||
           std::ranges::any_of(layout_.format->names,
                               [&](const SettingName& known) {
                                 return known.theirs == entry.key && known.kind == SettingKind::shards;
                               }) ||
           std::ranges::any_of(layout_.format->unplanned, [&](const UnplannedSetting& unplanned) {
             return unplanned.planned == "false" && unplanned.key == name;
           });
  }

  static std::optional<int64_t> whole(const Entry& entry) { return value_of<int64_t>(entry); }
  static std::optional<double> number(const Entry& entry) { return value_of<double>(entry); }

  template <class Value>
  static std::optional<Value> value_of(const Entry& entry) {
    Value value = 0;
    const char* end = entry.text.data() + entry.text.size();
    const auto [stop, error] = std::from_chars(entry.text.data(), end, value);
    if (error != std::errc{} || stop != end) return std::nullopt;
    return value;
  }

  static int64_t count(const Entry& entry) {
    const std::optional<int64_t> value = whole(entry);
    if (!value || *value < 1) fail(entry, "a whole number from 1 on");
    return *value;
  }

  // Returns whether CP ranks exchange keys and values as the framework does by default.
  bool has_usual_exchange() const {
    return std::ranges::none_of(layout_.format->names, [&](const SettingName& name) {
      return name.kind == SettingKind::exchange && entry_of(name.theirs) != nullptr;
    });
  }

  // Returns the items of a list, with brackets or without.
  static std::vector<std::string> items_of(std::string text) {
    std::erase_if(text, [](char c) { return c == '[' || c == ']'; });
    std::istringstream list(text);
    std::vector<std::string> items;
    for (std::string item; std::getline(list, item, ',');) items.push_back(item);
    return items;
  }

  // Returns the exchange of keys and values in all layers; empty if it is none of ours, or if layers differ.
  static std::string exchange_of(const Entry& entry) {
    const std::vector<std::string> items = items_of(entry.text);
    for (const CpExchange exchange : {CpExchange::allgather, CpExchange::ring})
      if (!items.empty() && std::ranges::count(items, comm_type_of(exchange)) == std::ssize(items))
        return std::string(name_of(exchange));
    return "";
  }

  // Returns the flag's value for a setting; empty if the setting has no effect.
  static std::string flag_value(const SettingName& name, const Entry& entry) {
    switch (name.kind) {
      case SettingKind::plain:
      case SettingKind::own_layers:
        break;
      case SettingKind::shards:
        if (entry.text != "true" && entry.text != "false") fail(entry, "true or false");
        return entry.text == "true" ? "1" : "0";
      case SettingKind::optimizer:
        return entry.text.find("dist") != std::string::npos ? "1" : "0";
      case SettingKind::recompute:
        if (entry.text != "selective" && entry.text != "full") fail(entry, "selective, full or null");
        return entry.text;
      case SettingKind::recompute_mode:
        if (entry.text != "none" && entry.text != "selective" && entry.text != "full")
          fail(entry, "none, selective or full");
        return entry.text;
      case SettingKind::exchange:
        return exchange_of(entry);
    }
    if (name.flag == "--zero") {
      if (entry.text != "0" && entry.text != "1") fail(entry, "0 or 1: no plan shards gradients or weights");
      return entry.text;
    }
    if (name.theirs == "training.global_batch_size" && entry.text == "-1") return "";  // local_batch_size determines it
    if (name.theirs == "tensor_parallel.autotp_size" && entry.text == "0") return "";  // off
    return std::to_string(count(entry));
  }

  void add_setting(const SettingName& name, const Entry& entry) {
    if (name.flag == "--nodes" || name.flag == "--ranks-per-node") {
      // Scripts use variables for these, and -1 means all GPUs of a node.
      const std::optional<int64_t> ranks = whole(entry);
      if (ranks && *ranks > 0) (name.flag == "--nodes" ? layout_.nodes : layout_.ranks_per_node) = ranks;
      return;
    }
    if (name.theirs.starts_with("expert_parallel.") && entry_of("expert_parallel.enabled") == nullptr)
      fail(entry, "expert_parallel.enabled beside it: DeepSpeed ignores it otherwise");
    const std::string value = flag_value(name, entry);
    if (value.empty()) return;
    for (LayoutFile::FlagSetting& other : layout_.settings) {
      if (other.flag != name.flag || other.value == value) continue;
      // A framework with two such settings shards states if either of them says so.
      if (name.kind != SettingKind::shards) fail(entry, fmt::format("{}, as in {}", other.value, other.where));
      other.value = "1";
      return;
    }
    if (layout_.find(name.flag) == nullptr) layout_.settings.push_back({name.flag, value, entry.where});
  }

  // Reads --num-layers-per-virtual-pipeline-stage, the older setting for virtual stages.
  void set_virtual_stages() {
    const Entry* chunk = entry_of(kLayersPerChunk);
    if (chunk == nullptr) return;
    const Entry* layers = entry_of("--num-layers");
    require<BadInput>(layers != nullptr, "{}: found it without --num-layers, expected both", chunk->where);
    const LayoutFile::FlagSetting* stages = layout_.find("--pp");
    const int64_t at_once = count(*chunk) * (stages == nullptr ? 1 : std::stoll(stages->value));
    if (count(*layers) % at_once != 0)
      fail(*layers, fmt::format("a multiple of {}, the layers of a chunk of all stages", at_once));
    layout_.settings.push_back({"--virtual-stages", std::to_string(count(*layers) / at_once), chunk->where});
  }

  // With these settings Megatron-Core counts the embedding or the loss as a layer when it divides layers, so that the
  // first stage (embedding) or the last one (loss) has one layer fewer than the others.
  void set_stage_layers() {
    const Entry *embedding = true_entry(kEmbeddingAsLayer), *loss = true_entry(kLossAsLayer);
    const Entry* counted = embedding != nullptr ? embedding : loss;
    const LayoutFile::FlagSetting* stages = layout_.find("--pp");
    if (counted == nullptr || !has_stages()) return;
    if (const LayoutFile::FlagSetting* chunks = layout_.find("--virtual-stages");
        chunks != nullptr && chunks->value != "1")
      fail(*counted, "false with virtual stages, whose chunks must have equally many layers");
    const Entry* layers = nullptr;
    for (const Entry& entry : entries_)
      if (ends_with_name(plain_name(entry), "num_layers")) layers = &entry;
    require<BadInput>(layers != nullptr, "{} requires num_layers", counted->where);
    const int64_t all = count(*layers) + (embedding != nullptr ? 1 : 0) + (loss != nullptr ? 1 : 0);
    const int64_t shares = std::stoll(stages->value);
    if (all % shares != 0 || all == shares)
      fail(*layers, fmt::format("a number that makes {}, with those that {} counts, a multiple of {} stages", all,
                                counted->key, shares));
    const std::string fewer = std::to_string(all / shares - 1);
    if (embedding != nullptr) layout_.settings.push_back({"--first-stage-layers", fewer, embedding->where});
    if (loss != nullptr) layout_.settings.push_back({"--last-stage-layers", fewer, loss->where});
  }

  const Entry* true_entry(std::string_view name) const {
    if (layout_.framework->key != "megatron") return nullptr;
    const auto found = std::ranges::find_if(
        entries_, [&](const Entry& entry) { return entry.text == "true" && ends_with_name(plain_name(entry), name); });
    return found == entries_.end() ? nullptr : &*found;
  }

  // DeepSpeed accumulates gradients only if the file gives two of its three sizes.
  void set_batches() {
    const auto says = [&](std::string_view flag) { return layout_.find(flag) != nullptr; };
    const bool has_accumulation =
        std::ranges::find(layout_.format->names, "--micro-batches", &SettingName::flag) != layout_.format->names.end();
    if (has_accumulation && !says("--micro-batches") && says("--batch") != says("--global-batch"))
      layout_.defaults.push_back({"--micro-batches", "1"});
  }

  // torchtitan cuts a local batch into micro-batches if it has stages; otherwise a local batch is one micro-batch.
  void set_pipeline_batch() {
    if (layout_.framework->key != "torchtitan") return;
    const Entry* local = entry_of("training.local_batch_size");
    int64_t micro_batches = 1;
    if (has_stages()) {
      const Entry* part = entry_of("parallelism.pipeline_parallel_microbatch_size");
      const int64_t size = part == nullptr ? 1 : count(*part), whole = local == nullptr ? 8 : count(*local);
      if (whole % size != 0) fail(*part, fmt::format("a divisor of local_batch_size {}", whole));
      micro_batches = whole / size;
      std::erase_if(layout_.settings, [](const LayoutFile::FlagSetting& said) { return said.flag == "--batch"; });
      layout_.settings.push_back({"--batch", std::to_string(size), part == nullptr ? layout_.path : part->where});
    }
    if (layout_.find("--global-batch") == nullptr)
      layout_.settings.push_back(
          {"--micro-batches", std::to_string(micro_batches), local == nullptr ? layout_.path : local->where});
  }

  bool has_stages() const {
    const LayoutFile::FlagSetting* stages = layout_.find("--pp");
    return stages != nullptr && stages->value != "1";
  }

  std::string recompute() const {
    const LayoutFile::FlagSetting* said = layout_.find("--recompute");
    return said == nullptr ? "" : said->value;
  }

  // Returns the setting's name without dashes: "context_parallel_size".
  std::string plain_name(const Entry& entry) const {
    if (!entry.key.starts_with("--")) return entry.key;
    std::string name = entry.key.substr(2);
    std::ranges::replace(name, '-', '_');
    return name;
  }

  static bool ends_with_name(std::string_view name, std::string_view end) {
    return name.ends_with(end) && (name.size() == end.size() || name[name.size() - end.size() - 1] == '.');
  }

  void check_unplanned(const Entry& entry, const UnplannedSetting& unplanned) {
    const bool is_planned = entry.text == unplanned.planned || entry.text == fmt::format("[{}]", unplanned.planned);
    if (is_planned || entry.text == "false") return;
    if (unplanned.key == "pipeline_parallel_schedule" && !has_stages()) return;
    if (!unplanned.under.empty() && unplanned.under != recompute()) return;
    if (unplanned.key == kModules) check_modules(entry);
    if (!unplanned.why.empty())
      fail(entry, fmt::format("{}: {}", unplanned.planned.empty() ? "null" : unplanned.planned, unplanned.why));
    layout_.unplanned.push_back(fmt::format("{} {}", entry.key, entry.text));
  }

  // Refuses, or notes, settings for features that no plan has.
  void check(const Entry& entry) {
    const std::string name = plain_name(entry);
    const auto known = std::ranges::find(layout_.format->names, entry.key, &SettingName::theirs);
    const bool is_known =
        known != layout_.format->names.end() && (known->kind != SettingKind::exchange || !exchange_of(entry).empty());
    if (is_known || &entry == true_entry(kEmbeddingAsLayer) || &entry == true_entry(kLossAsLayer)) return;
    for (const UnplannedSetting& unplanned : layout_.format->unplanned) {
      if (!ends_with_name(name, unplanned.key)) continue;
      return check_unplanned(entry, unplanned);
    }
    if (name.ends_with("data_parallel_size")) return;
    const std::string last = name.substr(name.rfind('.') + 1);
    layout_.ignored.push_back(entry.key);
    if (!last.ends_with(kGroupSize) || last == "model_parallel_size") return;
    if (const std::optional<int64_t> size = whole(entry); size && *size > 1) fail(entry, "1: no plan has such groups");
  }

  // Refuses the recomputation of parts that take long.
  static void check_modules(const Entry& entry) {
    constexpr std::array<std::string_view, 4> kShort{"core_attn", "layernorm", "moe_act", "mla_up_proj"};
    for (const std::string& module : items_of(entry.text))
      if (std::ranges::find(kShort, module) == kShort.end())
        fail(entry, fmt::format("only {}: no plan recomputes other parts of a layer alone", fmt::join(kShort, ", ")));
  }

  // Plans with several MP ranks split the rows of norms among them, like --sequence-parallel.
  void note_sequence() {
    const LayoutFile::FlagSetting* mp = layout_.find("--mp");
    if (mp == nullptr || mp->value == "1" || layout_.framework->key != "megatron") return;
    for (const Entry& entry : entries_)
      if (ends_with_name(plain_name(entry), kSequence) && entry.text == "true") return;
    layout_.unplanned.emplace_back("no sequence parallelism");
  }

  // An expert is as wide as a dense layer unless the file says its own width.
  void note_sizes() {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kSizes{
        {{"--seq", "seq_length"},
         {"--seq", "encoder_seq_length"},
         {"--seq", "training.seq_len"},
         {"--layers", "num_layers"},
         {"--model-dim", "hidden_size"},
         {"--hidden", "moe_ffn_hidden_size"},
         {"--hidden", "ffn_hidden_size"},
         {"--heads", "num_attention_heads"},
         {"--kv-heads", "num_query_groups"},
         {"--experts", "num_experts"},
         {"--experts", "num_moe_experts"},
         {"--top-k", "moe_router_topk"},
         {"--capacity-factor", "moe_expert_capacity_factor"}}};
    for (const auto& [flag, size] : kSizes)
      for (const std::string_view place : {"", "model.", "model.config."})
        for (const Entry& entry : entries_) {
          const bool is_known =
              std::ranges::find(layout_.sizes, flag, &LayoutFile::FlagSetting::flag) != layout_.sizes.end();
          if (plain_name(entry) == fmt::format("{}{}", place, size) && !is_known && number(entry))
            layout_.sizes.push_back({flag, entry.text, entry.key});
        }
  }

  std::vector<Entry> entries_;
  bool has_arguments_ = false;
  LayoutFile layout_;
};

}  // namespace

const LayoutFile::FlagSetting* LayoutFile::find(std::string_view flag) const {
  const auto found = std::ranges::find(settings, flag, &FlagSetting::flag);
  return found == settings.end() ? nullptr : &*found;
}

LayoutFile read_layout(const std::string& path) { return Reader(path).read(); }

}  // namespace moe::commands
