#pragma once
// The formats: each writes what the options ask for, or reads files into records. docs/exchange.md describes them.
#include <iosfwd>
#include <string>

#include "exchange/exchange.h"
#include "moe/record/reader.h"

namespace moe::exchange {

void write_csv(const ExportOptions& options, std::ostream& out);
void write_tutel(const ExportOptions& options, std::ostream& out);
void write_fsmoe(const ExportOptions& options, std::ostream& out);
void write_megatron(const ExportOptions& options, std::ostream& out);
void write_deepspeed(const ExportOptions& options, std::ostream& out);
void write_google_benchmark(const ExportOptions& options, std::ostream& out);
void write_otava_csv(const ExportOptions& options, std::ostream& out);
void write_otava_json(const ExportOptions& options, std::ostream& out);
void write_plan_document(const ExportOptions& options, std::ostream& out);
void write_chakra(const ExportOptions& options, std::ostream& out);

void import_csv(const ImportOptions& options);
void import_csv_profile(const ImportOptions& options);
void import_nccl_tests(const ImportOptions& options);
void import_kineto(const ImportOptions& options);

/// The cells of a profile's or of records' tables, a row each (csv).
void write_profile_csv(const ExportOptions& options, std::ostream& out);
void write_record_csv(const Run& run, std::ostream& out);

/// Returns the seconds of a case, forward and backward or of an operation: measured, else predicted; 0 of none.
double seconds_of(const CaseRecord& record);
/// Returns what of the case's samples counts, the slowest rank's seconds by iteration; empty: it has none.
std::vector<double> samples_of(const CaseRecord& record);

}  // namespace moe::exchange
