# What is said of KVM in each state that it can be in, by `caisson doctor`, and by servers in their `info` and in what they refuse.
n=0
export CAISSON_URL=http://127.0.0.1:4780
c=/mnt/bin/caisson

# NAME TEXT FILE: the text is in it
says() {
	n=$((n + 1))
	if grep -qF -- "$2" "$3"; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1: nowhere \"$2\" in:"
		cat "$3"
	fi
}
doctor() { # NAME TEXT
	$c doctor > /tmp/doctor 2>&1
	says "doctor, $1" "$2" /tmp/doctor
}
start() { # [OPTION...]
	: > /tmp/serving
	$c serve --data /tmp/kvm-data --listen 127.0.0.1:4780 --boundary vm "$@" > /tmp/serving 2> /tmp/log &
	server=$!
	while kill -0 $server 2>/dev/null && ! grep -q ^ready /tmp/serving; do sleep 0.2; done
	CAISSON_API_KEY=$(cat /tmp/kvm-data/api-key 2>/dev/null)
	export CAISSON_API_KEY
}
stop() {
	kill $server 2>/dev/null
	wait $server
}
server() { # NAME TEXT
	start
	$c info > /tmp/info 2>&1 || cat /tmp/log >> /tmp/info
	says "info, $1" "$2" /tmp/info
	stop
}
refused() { # NAME TEXT
	start --accelerator kvm
	stop
	says "serve --accelerator kvm, $1" "$2" /tmp/log
}
module() { # ACTION NAME...: by number, there is no program for it here
	python3 -c '
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
for m in sys.argv[1:]:
    if libc.syscall(176, m.encode(), 0) != 0:
        sys.exit(f"{m}: errno {ctypes.get_errno()}")' "$@"
}

doctor "KVM is there" "/dev/kvm answers"
server "KVM is there" "with KVM: not tried yet"

chmod 600 /dev/kvm
python3 -c 'import os; os.setgid(65534); os.setuid(65534); os.execv("/mnt/bin/caisson", ["caisson", "doctor"])' > /tmp/doctor 2>&1
says "doctor of another user, KVM is root's" "/dev/kvm is there, and not for this user to try" /tmp/doctor
server "KVM is root's" "with KVM: not tried yet"

# It goes while a server runs, which was told to use nothing else.
start --accelerator kvm
mv /dev/kvm /dev/kvm.away
$c create --boundary vm > /tmp/created 2>&1
says "create, KVM has gone" "KVM has gone: there is no /dev/kvm" /tmp/created
stop
doctor "no KVM" "there is no /dev/kvm: machines are emulated"
server "no KVM" "emulated, several times slower: there is no /dev/kvm"
refused "no KVM" "--accelerator kvm: there is no /dev/kvm"

mknod /dev/kvm c 1 3
doctor "something else" "/dev/kvm is not KVM's device"
server "something else" "/dev/kvm is not KVM's device"
rm /dev/kvm

mv /dev/kvm.away /dev/kvm
cp -a /dev/kvm /dev/kvm.copy
module kvm_amd
rm -f /dev/kvm
mv /dev/kvm.copy /dev/kvm
doctor "no module" "/dev/kvm has no kernel module behind it"
server "no module" "emulated, several times slower: /dev/kvm has no kernel module behind it"
rm -r /tmp/kvm-data
