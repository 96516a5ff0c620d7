# bash completion for mrshare(1) and mrshared(8): what their --help lists.
# SPDX-License-Identifier: BSD-2-Clause

_mrshare() {
    local program=("$1") help value words=''
    COMPREPLY=()
    if [[ ${1##*/} == mrshare ]] && ((COMP_CWORD > 1)); then program+=("${COMP_WORDS[1]}"); fi
    help=$("${program[@]}" --help 2>/dev/null) || return

    if [[ $3 =~ ^--[a-z-]+$ ]]; then
        value=$(sed -nE "s/^  $3(, -[a-z])? ([^ ]+).*/\2/p" <<<"$help")
        [[ $3 != --log-level ]] || value="error|warning|info|debug"
        # Words to choose from are in small letters; for anything else there are files.
        if [[ $value =~ ^[a-z|]+$ ]]; then
            words=${value//|/ }
        elif [[ $value ]]; then
            return
        fi
    fi
    if [[ ! $words ]]; then words=$(sed -nE 's/^  (--[a-z-]+|[a-z]+)(,? .*)?$/\1/p' <<<"$help" | grep -vx mrshare); fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$2")
}

complete -o bashdefault -o default -F _mrshare mrshare mrshared
